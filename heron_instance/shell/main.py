"""Life of an instance process: set-up, link, plan, user code, run, end.

``run_instance`` is called in a child forked from the zygote, or by ``python -m heron_instance``. User code and its
packages are imported only here, after the plan has arrived. Exit codes: 0 asked to stop, 1 user code (or this code)
failed, 120 parent gone, 121 replaced, 122 other settings in the plan.

All I/O runs on one thread with an event loop: the gateway, the heartbeat, the timer of reports and the watch over the
lifeline. When the gateway fails, the process ends.

With checkpoints the process runs one executor for each generation::

    plan: restoring g ──▶ load, initialize, join g ──▶ run ──plan: restoring g+1──▶ close, leave g ──▶ load …
                                  │ failed                     (a plan that runs without us, or has failed: wait)
                                  └──▶ report it, wait for g+1

A restore is fast because no process is started for it: the component is closed and made again, and the link to the
stream manager is opened again under the next generation, so that nothing of the one before can arrive. Modules and
their variables live on. A component that does not close in time, or leaves threads behind, would live on as well: then
the process ends and the zygote forks another.
"""

from __future__ import annotations

import asyncio
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
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np

from heron_instance.core.bolt_executor import BoltExecutor
from heron_instance.core.executor import Executor
from heron_instance.core.spout_executor import SpoutExecutor
from heron_instance.core.state.task_state import StateSetup
from heron_instance.core.task import ExecutorDriver, ExecutorSetup
from heron_instance.core.user_code import UserCodeFailed
from heron_instance.core.values_codec import make_values_codec
from heron_instance.shell.checkpoint_io import PartWriter, load_restored_state
from heron_instance.shell.executor_loop import (
    ExecutorLoop,
    GenerationChanged,
    SettingsChanged,
    StopRequested,
    TaskReplaced,
    now_ms,
)
from heron_instance.shell.gateway import Gateway, LinkSetup
from heron_instance.shell.inbox import Inbox, InboxItem, LeaveRequested, PlanArrived, Stop, WakeUp
from heron_runtime.checkpoint_files import CheckpointFolder, checkpoint_folder
from heron_runtime.failures import encodable
from heron_runtime.launch import Launch
from heron_runtime.linux import become_subreaper
from heron_runtime.model.checkpoints import TaskReport
from heron_runtime.model.ids import instance_id
from heron_runtime.model.plan import GenerationPhase, PhysicalPlan
from heron_runtime.model.settings import Keys, setting
from heron_runtime.orphans import reap_ended_orphans
from heron_runtime.process import (
    EXIT_OTHER_SETTINGS,
    EXIT_REPLACED,
    ProcessArguments,
    ProcessPhase,
    beat_forever,
    run_loop,
    set_scheduling,
    set_up_process,
    take_key,
    watch_lifeline,
)
from heron_runtime.process_stats import LoopLag
from heron_runtime.telemetry.recorder import Telemetry
from heron_runtime.wire.metrics import ProcessMetrics

PROJECT_ROOT = Path(__file__).resolve().parent.parent.parent  # the folder of all packages
PACKAGE_FOLDERS = tuple(
    f"{PROJECT_ROOT / room}{os.sep}" for room in ("heron_instance", "heron_container", "heron_runtime", "heronry")
)
log = logging.getLogger(__name__)
STUCK_CALL_SECONDS = 10.0  # in one call of user code, while a later generation waits
SWITCH_INTERVAL_SECONDS = 0.0005  # or each wake-up of the gateway waits 5 ms for a busy executor
GC_THRESHOLD = 50_000


class ProcessThreads:
    """Threads of this process, for ``EmitThreadGuard``."""

    current = staticmethod(threading.get_ident)
    count = staticmethod(threading.active_count)

    @staticmethod
    def name() -> str:
        """Return the name of the calling thread."""
        return threading.current_thread().name


def locate_main_thread(folder: Path) -> str:
    """Return function, file and line of the main thread in user code, which is in ``folder``."""
    return locate_user_frame(sys._current_frames().get(threading.main_thread().ident or 0), folder)


def locate_user_frame(frame: FrameType | None, folder: Path) -> str:
    """Return function, file and line of the innermost frame of user code.

    User code is a frame in ``folder``, else any frame outside of this project. Returns ``""`` if there is none.
    """
    prefix, fallback = f"{folder}{os.sep}", ""
    while frame is not None:
        code = frame.f_code
        name = f"{code.co_qualname}, {os.path.basename(code.co_filename)}:{frame.f_lineno}"
        if code.co_filename.startswith(prefix):
            return name
        if not fallback and not code.co_filename.startswith((*PACKAGE_FOLDERS, "<")):
            fallback = name
        frame = frame.f_back
    return fallback


class LeftoverThreads(Exception):
    """A component was closed, but threads that it started are still running."""


def run_instance(launch: Launch, container: int, component: str, task: int, slot: int, lifeline: int) -> int:
    """Run this instance until the end. Return the exit code."""
    name = instance_id(container, component, task)
    set_up_process(f"heron:{launch.topology}:{name}", hidden=False)  # the author of the topology may debug it
    key = take_key(lifeline)
    set_scheduling(setting(launch.settings, Keys.HERON_PROCESS_SCHEDULING))
    become_subreaper()  # what user code daemonises lives as long as this instance
    random.seed()
    sys.argv = [name]  # the first plan has the arguments of the user's program
    sys.setswitchinterval(SWITCH_INTERVAL_SECONDS)
    add_user_paths(launch.package_dir)
    return InstanceProcess(launch, container, component, task, slot, lifeline, key).run()


class InstanceProcess:
    """Process of one instance: the executor on the main thread, all I/O on the gateway thread."""

    def __init__(
        self, launch: Launch, container: int, component: str, task: int, slot: int, lifeline: int, key: str
    ) -> None:
        self.launch = launch
        self.container = container
        self.component = component
        self.task = task
        # Greater than that of every earlier process on this host, where its stream manager runs as well.
        self.incarnation = time.monotonic_ns()
        name = instance_id(container, component, task)
        self.telemetry = Telemetry(component, name, container, task, self.incarnation)
        self.inbox = Inbox()
        self.phase = ProcessPhase.STARTING
        self.gateway = Gateway(
            LinkSetup(launch, container, task, self.incarnation, self.telemetry.count, key), self.inbox
        )
        self._arguments = ProcessArguments(launch, Path(), container, slot, lifeline)
        self._lag = LoopLag()
        self._gateway_thread = threading.Thread(target=self._run_gateway, name="gateway", daemon=True)
        self._loop: ExecutorLoop | None = None  # of the current executor
        self._generation = 0  # of the current executor, or the one it waits in
        self._behind_since: float | None = None  # since when a plan of a later generation waits

    def run(self) -> int:
        """Run until the end. Return the exit code."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: self.inbox.put(Stop()))
        self._gateway_thread.start()
        grace: float = setting(self.launch.settings, Keys.HERON_STOP_GRACE_SECS)
        code = 0
        try:
            plan, early = self._first_plan()
            sys.argv[1:] = setting(plan.topology.config, Keys.TOPOLOGY_ARGUMENTS)  # before the user's code is imported
            if plan.generation.number:
                self._run_generations(plan)
            loop = self._make_loop(plan)
            loop.expect(early)
            loop.executor.start()
            self._enter_running(plan)
            loop.run()
        except StopRequested:
            log.info("asked to stop")
        except TaskReplaced as error:
            log.warning("leaving: %s", error)
            code = EXIT_REPLACED
        except SettingsChanged:
            log.info("settings changed in the plan: ending, to be started again with them")
            code = EXIT_OTHER_SETTINGS
        except UserCodeFailed as error:
            log.error("%s; the instance is restarted (topology.on.exception is restart)", error)
            code = 1
        except BaseException as error:
            log.exception("%s task %d cannot run", self.component, self.task)
            self.telemetry.exception(type(error).__name__, str(error), traceback.format_exc(), time.time())
            code = 1
        if self._loop is not None:
            self._loop.finish()
        self.gateway.close()
        self._gateway_thread.join(max(0.5, grace / 2))
        logging.shutdown()
        return code

    def _first_plan(self) -> tuple[PhysicalPlan, list[InboxItem]]:
        """Wait for a plan with this task. Return it and the earlier items. Raises StopRequested, TaskReplaced."""
        early: list[InboxItem] = []
        while True:
            for item in self.inbox.take(None):
                match item:
                    case Stop():
                        raise StopRequested
                    case LeaveRequested():
                        raise TaskReplaced(item.reason)
                    case _:
                        early.append(item)
            plans = [item.plan for item in early if isinstance(item, PlanArrived) and self.task in item.plan.tasks()]
            if plans:
                return plans[-1], [item for item in early if not isinstance(item, PlanArrived)]

    # Executors.

    def _make_loop(self, plan: PhysicalPlan, state: StateSetup | None = None) -> ExecutorLoop:
        """Make an executor and its loop; neither is started."""
        interval_ms = 1000 * setting(self.launch.settings, Keys.HERON_METRICS_INTERVAL_SECS)
        self._loop = ExecutorLoop(
            partial(self._make_executor, plan, state),
            self.inbox,
            self.gateway,
            self.telemetry,
            min(1000.0, interval_ms),
        )
        return self._loop

    def _enter_running(self, plan: PhysicalPlan) -> None:
        """Enter the running phase once user code is initialized."""
        if plan.generation.number > 1:
            gc.unfreeze()
            gc.collect()  # objects of the generation before
        gc.collect(1)  # a full collection also empties free lists, which writes to pages shared with the zygote
        gc.freeze()
        gc.set_threshold(GC_THRESHOLD, 20, 100)
        self.phase = ProcessPhase.RUNNING
        log.info("%s task %d runs (plan %s)", self.component, self.task, plan.version)

    def _make_executor(self, plan: PhysicalPlan, state: StateSetup | None, driver: ExecutorDriver) -> Executor:
        config = plan.topology.component_config(self.component)
        debug = setting(config, Keys.TOPOLOGY_DEBUG)
        logging.getLogger().setLevel("DEBUG" if debug else setting(config, Keys.TOPOLOGY_LOG_LEVEL))
        os.environ.update({name: str(value) for name, value in setting(config, Keys.TOPOLOGY_ENVIRONMENT).items()})
        spec = plan.topology.component(self.component)
        lock = threading.RLock()
        lock.acquire()  # this thread drives the executor
        setup = ExecutorSetup(
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
            wake=lambda: self.inbox.put(WakeUp()),
            settings=self.launch.settings,
            state=state,
            threads=ProcessThreads(),
            driver=driver,
        )
        return SpoutExecutor(setup) if spec.is_spout else BoltExecutor(setup)

    # Generations of a stateful topology.

    def _run_generations(self, plan: PhysicalPlan) -> None:
        """Run one executor per generation. Raises StopRequested, TaskReplaced, LeftoverThreads."""
        config = plan.topology.config
        timeout_ms = 1000 * setting(config, Keys.TOPOLOGY_STATEFUL_CHECKPOINT_TIMEOUT_SECS)
        folder = checkpoint_folder(setting(config, Keys.TOPOLOGY_STATEFUL_CHECKPOINT_STORAGE), self.launch.home)
        writer = PartWriter(folder, self.inbox.put)
        threads = frozenset(threading.enumerate())  # with that of the writer
        while True:
            generation = plan.generation
            self._generation = generation.number
            self.gateway.report_task(TaskReport(generation.number))
            later: PhysicalPlan | None = None
            if generation.phase is GenerationPhase.RESTORING:
                try:
                    self._run_generation(plan, folder, writer, timeout_ms)
                except GenerationChanged as news:
                    later = news.plan
                except Exception as error:
                    self._report_failure(generation.number, error)
            else:
                log.info("generation %d is %s; waiting for the next one", generation.number, generation.phase)
            plan = later or self._await_later(generation.number)
            self._end_generation(threads)  # plans that are still in the inbox are not older

    def _run_generation(
        self, plan: PhysicalPlan, folder: CheckpointFolder, writer: PartWriter, timeout_ms: float
    ) -> None:
        generation = plan.generation
        log.info("generation %d begins with checkpoint %d", generation.number, generation.restore_from)
        codec = make_values_codec(plan.topology.component_config(self.component), load)
        restored = load_restored_state(folder, plan, self.task, codec)
        loop = self._make_loop(plan, StateSetup(writer.write, timeout_ms, restored))
        loop.executor.start()
        self.gateway.join(generation.number)
        self._enter_running(plan)
        loop.run()

    def _report_failure(self, generation: int, error: Exception) -> None:
        text = encodable(str(error) if isinstance(error, UserCodeFailed) else f"{type(error).__name__}: {error}")
        log.error("generation %d failed: %s", generation, text, exc_info=error)
        if not isinstance(error, UserCodeFailed):  # which is counted already
            self.telemetry.exception(type(error).__name__, str(error), traceback.format_exc(), time.time())
        checkpointer = None if self._loop is None else self._loop.executor.checkpointer
        report = TaskReport(generation, failed=text) if checkpointer is None else checkpointer.failed(text)
        self.gateway.report_task(report)

    def _await_later(self, generation: int) -> PhysicalPlan:
        """Return the next plan of a later generation. Raises StopRequested, TaskReplaced."""
        while True:
            for item in self.inbox.take(None):
                match item:
                    case Stop():
                        raise StopRequested
                    case LeaveRequested(reason):
                        raise TaskReplaced(reason)
                    case PlanArrived(plan) if plan.generation.number > generation and self.task in plan.tasks():
                        return plan

    def _end_generation(self, threads: frozenset[threading.Thread]) -> None:
        """Close the component, leave its generation and forget its items.

        Raises LeftoverThreads for threads that were not there before.
        """
        loop, self._loop = self._loop, None
        if loop is not None:
            loop.executor.stop(now_ms())
            self.gateway.flush_timer.detach()
        self.gateway.leave_generation()
        for item in self.inbox.take(0):
            if isinstance(item, PlanArrived | Stop | LeaveRequested):
                self.inbox.put(item)
        leftover = [thread.name for thread in threading.enumerate() if thread not in threads and thread.is_alive()]
        if leftover:
            raise LeftoverThreads(f"close() has left threads running: {', '.join(leftover)}\nhint: end them in close()")

    # On the gateway thread.

    def _run_gateway(self) -> None:
        try:
            run_loop(self._serve_gateway())
        except BaseException:
            log.exception("gateway failed")
            os._exit(1)

    async def _serve_gateway(self) -> None:
        loop = asyncio.get_running_loop()
        watch_lifeline(self._arguments.lifeline, loop)
        timers = (
            loop.create_task(beat_forever(self._arguments, self._beat, self._lag, self._describe_activity)),
            loop.create_task(self._report_forever()),
        )
        try:
            await self.gateway.run(self._collect)
        finally:
            for timer in timers:
                timer.cancel()
            await asyncio.gather(*timers, return_exceptions=True)

    def _beat(self) -> ProcessPhase:
        self.gateway.report_taken()  # instead of a timer of its own
        return self.phase

    async def _report_forever(self) -> None:
        interval = setting(self.launch.settings, Keys.HERON_METRICS_INTERVAL_SECS)
        while True:
            await asyncio.sleep(interval)
            self.gateway.request_report()

    def _collect(self) -> ProcessMetrics:
        reap_ended_orphans()
        report = self.telemetry.report(time.time())
        return replace(report, gauges={**report.gauges, "__event-loop-lag-ms": self._lag.take_ms()})

    def _describe_activity(self) -> str:
        """Describe a long activity for the heartbeat. A long call of a bolt also goes to its stream manager."""
        loop = self._loop
        if loop is None:
            self._behind_since = None
            return ""
        executor = loop.executor
        if isinstance(executor, BoltExecutor):
            self.gateway.report_call_time(int(executor.gate.in_call_ms()))
        stuck = self._stuck_call(executor)
        if stuck:
            log.error("%s; the process ends and is replaced", stuck)
            os._exit(1)
        in_call = executor.gate.describe_call(lambda: locate_main_thread(self.launch.package_dir))
        if not in_call and isinstance(executor, SpoutExecutor):
            return executor.window.describe_wait(time.monotonic() * 1000) or executor.at_end.status
        return in_call

    def _stuck_call(self, executor: Executor) -> str:
        """Return why the process must end because user code does not return, or an empty string."""
        behind = self._generation and self.gateway.planned_generation > self._generation
        in_call_ms = executor.gate.in_call_ms() if behind else 0.0
        if not in_call_ms:
            self._behind_since = None
            return ""
        now = time.monotonic()
        if self._behind_since is None:
            self._behind_since = now
        if now - self._behind_since < STUCK_CALL_SECONDS:
            return ""
        return f"all tasks are being restored, but user code has been in one call for {in_call_ms / 1000:.0f} s"


def add_user_paths(package_dir: Path) -> None:
    """Put the user's modules, then their requirements, first on the module path."""
    for folder in (package_dir / "requirements", package_dir):
        text = str(folder)
        if folder.is_dir() and text not in sys.path:
            sys.path.insert(0, text)


def load(path: str) -> Any:
    """Return the class named ``module:Class``. Raises ImportError or AttributeError with a hint."""
    module_name, _, attribute = path.partition(":")
    try:
        target: Any = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        raise ImportError(
            f"cannot import {module_name!r} for {path!r}: {error}\n"
            "hint: add it to the submitted file or package, and its requirements to requirements.txt"
        ) from error
    for part in attribute.split("."):
        target = getattr(target, part)
    return target
