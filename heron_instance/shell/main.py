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
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import Any, Protocol

import numpy as np

from heron_instance.core.bolt_executor import BoltExecutor
from heron_instance.core.executor import Executor
from heron_instance.core.spout_executor import SpoutExecutor
from heron_instance.core.state.task_state import StateSetup
from heron_instance.core.task import ExecutorSetup
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
from heron_runtime.checkpoint_files import checkpoint_folder
from heron_runtime.kernel import adopt_orphans
from heron_runtime.launch import Launch
from heron_runtime.liveness import Phase
from heron_runtime.model.checkpoints import TaskReport
from heron_runtime.model.ids import instance_id
from heron_runtime.model.plan import Phase as GenerationPhase
from heron_runtime.model.plan import PhysicalPlan
from heron_runtime.model.settings import Keys, setting
from heron_runtime.net.loop import run_loop
from heron_runtime.orphans import reap_ended_orphans
from heron_runtime.process import (
    EXIT_OTHER_SETTINGS,
    EXIT_REPLACED,
    ProcessArguments,
    beat_forever,
    set_scheduling,
    set_up_process,
    take_key,
    watch_lifeline,
)
from heron_runtime.process_stats import LoopLag
from heron_runtime.telemetry.reporting import Telemetry
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


class LoopThread:
    """Thread of the event loop. ``phase``, ``report`` and ``doing`` are called on the loop."""

    def __init__(
        self,
        arguments: ProcessArguments,
        gateway: Gateway,
        phase: Callable[[], Phase],
        report: Callable[[], ProcessMetrics],
        doing: Callable[[], str],
    ) -> None:
        self._arguments = arguments
        self._gateway = gateway
        self._phase = phase
        self._collect = report
        self._doing = doing
        self._interval = setting(arguments.launch.settings, Keys.HERON_METRICS_INTERVAL_SECS)
        self._lag = LoopLag()
        self._thread = threading.Thread(target=self._run, name="gateway", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def close(self, timeout_seconds: float) -> None:
        """Let the gateway send its waiting messages, then end the thread. Give up after ``timeout_seconds``."""
        self._gateway.close()
        self._thread.join(timeout_seconds)

    def _run(self) -> None:
        try:
            run_loop(self._main())
        except BaseException:
            log.exception("gateway failed")
            os._exit(1)

    async def _main(self) -> None:
        arguments, loop = self._arguments, asyncio.get_running_loop()
        watch_lifeline(arguments.lifeline, loop)
        timers = (
            loop.create_task(beat_forever(arguments, self._beat, self._lag, self._doing)),
            loop.create_task(self._report_forever()),
        )
        try:
            await self._gateway.run(self._report)
        finally:
            for timer in timers:
                timer.cancel()
            await asyncio.gather(*timers, return_exceptions=True)

    def _beat(self) -> Phase:
        self._gateway.report_taken()  # instead of a timer of its own
        return self._phase()

    async def _report_forever(self) -> None:
        while True:
            await asyncio.sleep(self._interval)
            self._gateway.request_report()

    def _report(self) -> ProcessMetrics:
        report = self._collect()
        return replace(report, gauges={**report.gauges, "__event-loop-lag-ms": self._lag.take_ms()})


class MakeRunner(Protocol):
    """Makes an executor and its loop; neither is started."""

    def __call__(
        self, plan: PhysicalPlan, early: list[InboxItem], state: StateSetup | None
    ) -> tuple[Executor, ExecutorLoop]: ...


class LeftoverThreads(Exception):
    """A component was closed, but threads that it started are still running."""


class Lives:
    """Runs one executor per generation of a stateful topology, all in one process.

    ``started`` is called when an executor begins to run.
    """

    def __init__(
        self, launch: Launch, task: int, inbox: Inbox, gateway: Gateway, telemetry: Telemetry, plan: PhysicalPlan,
        make: MakeRunner, started: Callable[[PhysicalPlan], None], load: Callable[[str], Any],
    ) -> None:  # fmt: skip
        config = plan.topology.config
        folder = checkpoint_folder(setting(config, Keys.TOPOLOGY_STATEFUL_CHECKPOINT_STORAGE), launch.home)
        self.generation = 0  # the one that is lived, or waited in
        self.runner: ExecutorLoop | None = None
        self.executor: Executor | None = None
        self._folder = folder
        self._task = task
        self._inbox = inbox
        self._gateway = gateway
        self._telemetry = telemetry
        self._make = make
        self._started = started
        self._load = load
        self._writer = PartWriter(folder, inbox.put)  # its thread is one of ours
        self._timeout_ms = 1000 * setting(config, Keys.TOPOLOGY_STATEFUL_CHECKPOINT_TIMEOUT_SECS)
        self._threads = frozenset(threading.enumerate())
        self._behind_since: float | None = None  # a later plan has come since then

    def run(self, plan: PhysicalPlan) -> None:
        """Run until asked to stop. Raises StopRequested, TaskReplaced, LeftoverThreads."""
        while True:
            generation = plan.generation
            self.generation = generation.number
            self._gateway.report_task(TaskReport(generation.number))
            later: PhysicalPlan | None = None
            if generation.phase is GenerationPhase.RESTORING:
                try:
                    self._live(plan)
                except GenerationChanged as news:
                    later = news.plan
                except Exception as error:
                    self._failed(generation.number, error)
            else:
                log.info("generation %d is %s; waiting for the next one", generation.number, generation.phase)
            plan = later or self._await_later(generation.number)
            self._end()  # plans that are still in the inbox are not older

    def stuck(self) -> str:
        """Return why the process must end because user code does not return, or an empty string. Called on the loop."""
        executor = self.executor
        behind = self._gateway.planned_generation > self.generation
        in_call_ms = executor.gate.in_call_ms() if executor is not None and behind else 0.0
        if not in_call_ms:
            self._behind_since = None
            return ""
        now = time.monotonic()
        if self._behind_since is None:
            self._behind_since = now
        if now - self._behind_since < STUCK_CALL_SECONDS:
            return ""
        return f"all tasks are being restored, but user code has been in one call for {in_call_ms / 1000:.0f} s"

    def _live(self, plan: PhysicalPlan) -> None:
        generation = plan.generation
        log.info("generation %d begins with checkpoint %d", generation.number, generation.restore_from)
        codec = make_values_codec(plan.topology.component_config(plan.component_of(self._task)), self._load)
        restored = load_restored_state(self._folder, plan, self._task, codec)
        self.executor, runner = self._make(plan, [], StateSetup(self._writer.write, self._timeout_ms, restored))
        self.runner = runner
        self.executor.start()
        self._gateway.join(generation.number)
        self._started(plan)
        runner.run()

    def _failed(self, generation: int, error: Exception) -> None:
        text = str(error) if isinstance(error, UserCodeFailed) else f"{type(error).__name__}: {error}"
        log.error("generation %d failed: %s", generation, text, exc_info=error)
        if not isinstance(error, UserCodeFailed):  # which is counted already
            self._telemetry.exception(type(error).__name__, str(error), traceback.format_exc(), time.time())
        stateful = None if self.executor is None else self.executor.stateful
        report = TaskReport(generation, failed=text) if stateful is None else stateful.failed(text)
        self._gateway.report_task(report)

    def _await_later(self, generation: int) -> PhysicalPlan:
        """Return the next plan of a later generation. Raises StopRequested, TaskReplaced."""
        while True:
            for item in self._inbox.take(None):
                match item:
                    case Stop():
                        raise StopRequested
                    case LeaveRequested(reason):
                        raise TaskReplaced(reason)
                    case PlanArrived(plan) if plan.generation.number > generation and self._task in plan.tasks():
                        return plan

    def _end(self) -> None:
        """Close the component, leave its generation and forget its items. Raises LeftoverThreads."""
        executor, self.executor, self.runner = self.executor, None, None
        if executor is not None:
            executor.stop(now_ms())
        self._gateway.leave_generation()
        for item in self._inbox.take(0):
            if isinstance(item, PlanArrived | Stop | LeaveRequested):
                self._inbox.put(item)
        left = [thread.name for thread in threading.enumerate() if thread not in self._threads and thread.is_alive()]
        if left:
            raise LeftoverThreads(f"close() has left threads running: {', '.join(left)}\nhint: end them in close()")


def run_instance(launch: Launch, container: int, component: str, task: int, slot: int, lifeline: int) -> int:
    """Run this instance until the end. Return the exit code."""
    name = instance_id(container, component, task)
    set_up_process(f"heron:{launch.topology}:{name}", hidden=False)  # the author of the topology may debug it
    key = take_key(lifeline)
    set_scheduling(setting(launch.settings, Keys.HERON_PROCESS_SCHEDULING))
    adopt_orphans()  # what user code daemonises lives as long as this instance
    random.seed()
    sys.argv = [name]  # the first plan has the arguments of the user's program
    sys.setswitchinterval(SWITCH_INTERVAL_SECONDS)
    add_user_paths(launch.package_dir)
    return InstanceProcess(launch, container, component, task, slot, lifeline, key).run()


class InstanceProcess:
    """Parts of one instance process."""

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
        self.phase = Phase.STARTING
        self.gateway = Gateway(
            LinkSetup(launch, container, task, self.incarnation, self.telemetry.count, key), self.inbox
        )
        self.loop_thread = LoopThread(
            ProcessArguments(launch, Path(), container, slot, lifeline),
            self.gateway,
            lambda: self.phase,
            self._report,
            self._doing,
        )
        self._executor: Executor | None = None
        self._runner: ExecutorLoop | None = None
        self._lives: Lives | None = None  # where the state of tasks is kept

    def run(self) -> int:
        """Run until the end. Return the exit code."""
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
        if self._runner is not None and (self._lives is None or self._lives.runner is not None):
            self._runner.finish()
        self.loop_thread.close(max(0.5, grace / 2))
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
        """Describe a long activity for the heartbeat. A long call of a bolt also goes to its stream manager."""
        if self._executor is None:
            return ""
        if isinstance(self._executor, BoltExecutor):
            self.gateway.report_call_time(int(self._executor.gate.in_call_ms()))
        stuck = "" if self._lives is None else self._lives.stuck()
        if stuck:
            log.error("%s; the process ends and is replaced", stuck)
            os._exit(1)
        in_call = self._executor.gate.describe_call(lambda: locate_main_thread(self.launch.package_dir))
        if not in_call and isinstance(self._executor, SpoutExecutor):
            return self._executor.window.describe_wait(time.monotonic() * 1000) or self._executor.at_end.status
        return in_call

    def _make(
        self, plan: PhysicalPlan, early: list[InboxItem], state: StateSetup | None
    ) -> tuple[Executor, ExecutorLoop]:
        """Make an executor and its loop; ``early`` items came before it."""
        executor = self._executor = self._make_executor(plan, state)
        interval_ms = 1000 * setting(self.launch.settings, Keys.HERON_METRICS_INTERVAL_SECS)
        runner = self._runner = ExecutorLoop(
            executor, self.inbox, self.gateway, self.telemetry, min(1000.0, interval_ms)
        )
        runner.expect(early)
        return executor, runner

    def _started(self, plan: PhysicalPlan) -> None:
        """Enter the running phase once user code is initialized."""
        if plan.generation.number > 1:
            gc.unfreeze()
            gc.collect()  # objects of the generation before
        gc.collect(1)  # a full collection also empties free lists, which writes to pages shared with the zygote
        gc.freeze()
        gc.set_threshold(GC_THRESHOLD, 20, 100)
        self.phase = Phase.RUNNING
        log.info("%s task %d runs (plan %s)", self.component, self.task, plan.version)

    def _make_executor(self, plan: PhysicalPlan, state: StateSetup | None = None) -> Executor:
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
        )
        return SpoutExecutor(setup) if spec.is_spout else BoltExecutor(setup)


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
        found: Any = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        raise ImportError(
            f"cannot import {module_name!r} for {path!r}: {error}\n"
            "hint: add it to the submitted file or package, and its requirements to requirements.txt"
        ) from error
    for part in attribute.split("."):
        found = getattr(found, part)
    return found
