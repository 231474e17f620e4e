"""The life of an instance: set up, link, plan, user code, run, end.

``run_instance`` is called in a child forked from the zygote, or by ``python -m heron_instance``. User code and its own
packages are imported here and nowhere earlier, after the plan has come. Exit codes: 0 asked to stop, 1 user code (or
this code) failed, 120 parent gone, 121 replaced.
"""

from __future__ import annotations

import gc
import importlib
import logging
import os
import random
import signal
import sys
import threading
import time
import traceback
from pathlib import Path
from typing import Any

import numpy as np

from heron_instance.core.bolt_executor import BoltExecutor
from heron_instance.core.executor import Executor
from heron_instance.core.setup import Setup
from heron_instance.core.spout_executor import SpoutExecutor
from heron_instance.core.state.stateful import StateSetup
from heron_instance.core.user_errors import UserCodeFailed
from heron_instance.shell.gateway import Gateway
from heron_instance.shell.inbox import (
    Inbox,
    Item,
    MustLeave,
    PlanArrived,
    Stop,
    Wake,
)
from heron_instance.shell.lives import Lives
from heron_instance.shell.loop_thread import LoopThread
from heron_instance.shell.opening import GatewaySetup
from heron_instance.shell.runner import Left, OtherSettings, Runner, Stopped
from heron_instance.shell.threads import RealThreads
from heron_instance.shell.user_frame import place_of_main_thread
from heron_runtime.launch import Launch
from heron_runtime.linux import become_subreaper
from heron_runtime.liveness import ProcessPhase
from heron_runtime.model.ids import instance_id
from heron_runtime.model.plan import PhysicalPlan
from heron_runtime.model.settings import Keys, setting
from heron_runtime.orphans import reap_ended_orphans
from heron_runtime.process import (
    EXIT_OTHER_SETTINGS,
    EXIT_REPLACED,
    ProcessArguments,
    set_scheduling,
    set_up_process,
    take_key,
)
from heron_runtime.telemetry.recorder import Telemetry
from heron_runtime.wire.metrics import ProcessMetrics

SWITCH_INTERVAL_SECONDS = 0.0005  # or each wake-up of the gateway waits 5 ms for a busy executor
GC_THRESHOLD = 50_000

log = logging.getLogger(__name__)


def run_instance(launch: Launch, container: int, component: str, task: int, slot: int, lifeline: int) -> int:
    """Be this instance until the end; returns the exit code."""
    name = instance_id(container, component, task)
    set_up_process(f"heron:{launch.topology}:{name}", hidden=False)  # its author may debug it
    key = take_key(lifeline)
    set_scheduling(setting(launch.settings, Keys.HERON_PROCESS_SCHEDULING))
    become_subreaper()  # what user code daemonises lives as long as this instance
    random.seed()
    sys.argv = [name]  # in place of the process's own arguments; the first plan has those of the user's program
    sys.setswitchinterval(SWITCH_INTERVAL_SECONDS)
    add_user_paths(launch.package_dir)
    return Instance(launch, container, component, task, slot, lifeline, key).run()


class Instance:
    """One process's parts."""

    def __init__(
        self, launch: Launch, container: int, component: str, task: int, slot: int, lifeline: int, key: str
    ) -> None:
        self.launch = launch
        self.container = container
        self.component = component
        self.task = task
        # Greater than that of every process before it on this host, which is where its stream manager is, too.
        self.incarnation = time.monotonic_ns()
        name = instance_id(container, component, task)
        self.telemetry = Telemetry(component, name, container, task, self.incarnation)
        self.inbox = Inbox()
        self.phase = ProcessPhase.STARTING
        self.gateway = Gateway(
            GatewaySetup(launch, container, task, self.incarnation, self.telemetry.count, key), self.inbox
        )
        self.loop_thread = LoopThread(
            ProcessArguments(launch, Path(), container, slot, lifeline),
            self.gateway,
            lambda: self.phase,
            self._report,
            self._doing,
        )
        self._executor: Executor | None = None
        self._runner: Runner | None = None
        self._lives: Lives | None = None  # where the state of tasks is kept

    def run(self) -> int:
        """Until the end; returns the exit code."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: self.inbox.put(Stop()))
        self.loop_thread.start()
        grace: float = setting(self.launch.settings, Keys.HERON_STOP_GRACE_SECS)
        code = 0
        try:
            plan, early = self._first_plan()
            sys.argv[1:] = setting(plan.topology.config, Keys.TOPOLOGY_ARGUMENTS)  # before the user's code is imported
            if plan.generation.number:
                self._lives = Lives(
                    self.launch,
                    self.task,
                    self.inbox,
                    self.gateway,
                    self.telemetry,
                    plan,
                    self._make,
                    self._started,
                    load,
                )
                self._lives.run(plan)
            executor, runner = self._make(plan, early, None)
            executor.start()
            self._started(plan)
            runner.run()
        except Stopped:
            log.info("asked to stop")
        except Left as error:
            log.warning("leaving: %s", error)
            code = EXIT_REPLACED
        except OtherSettings:
            log.info("the plan has other settings for it: another process begins with them")
            code = EXIT_OTHER_SETTINGS
        except UserCodeFailed as error:
            log.error("%s; the instance ends and is started again (topology.on.exception is restart)", error)
            code = 1
        except BaseException as error:
            log.exception("%s task %d cannot run", self.component, self.task)
            self.telemetry.exception(type(error).__name__, str(error), traceback.format_exc(), time.time())
            code = 1
        if self._runner is not None and (self._lives is None or self._lives.runner is not None):
            self._runner.finish()
        self.loop_thread.close(max(0.5, grace / 2))
        logging.shutdown()
        return code

    def _first_plan(self) -> tuple[PhysicalPlan, list[Item]]:
        """Wait for a plan that holds this task; gives back what came before it, too. Raises Stopped, Left."""
        early: list[Item] = []
        while True:
            for item in self.inbox.take(None):
                match item:
                    case Stop():
                        raise Stopped
                    case MustLeave():
                        raise Left(item.reason)
                    case PlanArrived() if self.task in item.plan.tasks():
                        early.append(item)
                    case _:
                        early.append(item)
            plans = [item.plan for item in early if isinstance(item, PlanArrived) and self.task in item.plan.tasks()]
            if plans:
                return plans[-1], [item for item in early if not isinstance(item, PlanArrived)]

    def _report(self) -> ProcessMetrics:
        reap_ended_orphans()
        return self.telemetry.report(time.time())

    def _doing(self) -> str:
        """What it has been at for long; a bolt in one call holds tuples up, so its stream manager hears, too."""
        if self._executor is None:
            return ""
        if isinstance(self._executor, BoltExecutor):
            self.gateway.tell_in_call(int(self._executor.gate.in_call_ms()))
        stuck = "" if self._lives is None else self._lives.stuck()
        if stuck:
            log.error("%s; the process ends, so that another one can", stuck)
            os._exit(1)
        in_call = self._executor.gate.doing(lambda: place_of_main_thread(self.launch.package_dir))
        if not in_call and isinstance(self._executor, SpoutExecutor):
            return self._executor.window.waiting(time.monotonic() * 1000) or self._executor.at_end.doing
        return in_call

    def _make(self, plan: PhysicalPlan, early: list[Item], state: StateSetup | None) -> tuple[Executor, Runner]:
        """An executor and what drives it; ``early`` came before it."""
        executor = self._executor = self._make_executor(plan, state)
        interval_ms = 1000 * setting(self.launch.settings, Keys.HERON_METRICS_INTERVAL_SECS)
        runner = self._runner = Runner(executor, self.inbox, self.gateway, self.telemetry, min(1000.0, interval_ms))
        runner.expect(early)
        return executor, runner

    def _started(self, plan: PhysicalPlan) -> None:
        """User code is initialised."""
        if plan.generation.number > 1:
            gc.unfreeze()
            gc.collect()  # what the life before has left
        gc.collect(1)  # a full one also empties free lists, which writes to pages that are shared with the zygote
        gc.freeze()
        gc.set_threshold(GC_THRESHOLD, 20, 100)
        self.phase = ProcessPhase.RUNNING
        log.info("%s task %d runs (plan %s)", self.component, self.task, plan.version)

    def _make_executor(self, plan: PhysicalPlan, state: StateSetup | None = None) -> Executor:
        config = plan.topology.component_config(self.component)
        debug = setting(config, Keys.TOPOLOGY_DEBUG)
        logging.getLogger().setLevel("DEBUG" if debug else setting(config, Keys.TOPOLOGY_LOG_LEVEL))
        os.environ.update({name: str(value) for name, value in setting(config, Keys.TOPOLOGY_ENVIRONMENT).items()})
        spec = plan.topology.component(self.component)
        lock = threading.RLock()
        lock.acquire()  # this thread drives the executor
        setup = Setup(
            component=load(spec.python_class)(),
            plan=plan,
            task=self.task,
            incarnation=self.incarnation,
            rng=np.random.default_rng(),  # seeded by the operating system, after the fork
            telemetry=self.telemetry,
            clock=time.monotonic,
            wall=time.time,
            load=load,
            lock=lock,
            wake=lambda: self.inbox.put(Wake()),
            settings=self.launch.settings,
            state=state,
            threads=RealThreads(),
        )
        return SpoutExecutor(setup) if spec.is_spout else BoltExecutor(setup)


def add_user_paths(package_dir: Path) -> None:
    """The user's own modules first, then their requirements, ahead of everything else."""
    for folder in (package_dir / "requirements", package_dir):
        text = str(folder)
        if folder.is_dir() and text not in sys.path:
            sys.path.insert(0, text)


def load(path: str) -> Any:
    """The class named ``module:Class``. Raises ImportError, AttributeError, naming the cure."""
    module_name, _, attribute = path.partition(":")
    try:
        found: Any = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        raise ImportError(
            f"cannot import {module_name!r} for {path!r}: {error}. Is it in the submitted file or package, and are its "
            "requirements in requirements.txt?"
        ) from error
    for part in attribute.split("."):
        found = getattr(found, part)
    return found
