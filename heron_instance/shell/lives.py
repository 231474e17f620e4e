"""One executor after the other in one process, where the state of tasks is kept: a life for each generation.

::

    plan: restoring g ──▶ load, initialise, join g ──▶ run ──plan: restoring g+1──▶ close, leave g ──▶ load …
                                  │ failed                     (a plan that runs without us, or has failed: wait)
                                  └──▶ say so, wait for g+1

Theory of operation. Going back to a checkpoint is quick because nothing is started for it: the component is closed and
made anew, and the link to the stream manager is opened again under the next generation, so that nothing of the one
before can come. What a process keeps beyond that, modules with their variables, lives on. A component that does not
close in time, or leaves threads behind, would live on, too: then the process ends and the zygote forks another.
"""

from __future__ import annotations

import logging
import threading
import time
import traceback
from collections.abc import Callable
from typing import Any, Protocol

from heron_instance.core.executor import Executor
from heron_instance.core.state.stateful import StateSetup
from heron_instance.core.user_errors import UserCodeFailed
from heron_instance.core.values_codec import codec_of
from heron_instance.shell.gateway import Gateway
from heron_instance.shell.inbox import Inbox, Item, MustLeave, PlanArrived, Stop
from heron_instance.shell.part_writer import PartWriter
from heron_instance.shell.restore import restored_from
from heron_instance.shell.runner import Left, NewGeneration, Runner, Stopped, now_ms
from heron_runtime.checkpoint_files import checkpoint_folder
from heron_runtime.launch import Launch
from heron_runtime.model.checkpoints import TaskReport
from heron_runtime.model.plan import Phase, PhysicalPlan
from heron_runtime.model.settings import Keys, setting
from heron_runtime.telemetry.reporting import Telemetry

STUCK_SECONDS = 10.0  # in one call of user code, while a later generation waits

log = logging.getLogger(__name__)


class MakeRunner(Protocol):
    """Makes executor and runner; neither has been started."""

    def __call__(self, plan: PhysicalPlan, early: list[Item], state: StateSetup | None) -> tuple[Executor, Runner]: ...


class LeftThreads(Exception):
    """A component was closed, and threads it has started go on."""


class Lives:
    """Of one instance. ``started`` is called when an executor begins to run."""

    def __init__(
        self, launch: Launch, task: int, inbox: Inbox, gateway: Gateway, telemetry: Telemetry, plan: PhysicalPlan,
        make: MakeRunner, started: Callable[[PhysicalPlan], None], load: Callable[[str], Any],
    ) -> None:  # fmt: skip
        config = plan.topology.config
        folder = checkpoint_folder(setting(config, Keys.TOPOLOGY_STATEFUL_CHECKPOINT_STORAGE), launch.home)
        self.generation = 0  # the one that is lived, or waited in
        self.runner: Runner | None = None
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
        """Live until told to stop. Raises Stopped, Left, LeftThreads."""
        while True:
            generation = plan.generation
            self.generation = generation.number
            self._gateway.tell_report(TaskReport(generation.number))
            later: PhysicalPlan | None = None
            if generation.phase is Phase.RESTORING:
                try:
                    self._live(plan)
                except NewGeneration as news:
                    later = news.plan
                except Exception as error:
                    self._failed(generation.number, error)
            else:
                log.info("generation %d is %s; waiting for the next one", generation.number, generation.phase)
            plan = later or self._await_later(generation.number)
            self._end()  # whatever the inbox still holds of plans is not older

    def stuck(self) -> str:
        """Why the process has to end, since user code does not let it go on; empty while all is well. On the loop."""
        executor = self.executor
        behind = self._gateway.planned_generation > self.generation
        in_call_ms = executor.gate.in_call_ms() if executor is not None and behind else 0.0
        if not in_call_ms:
            self._behind_since = None
            return ""
        now = time.monotonic()
        if self._behind_since is None:
            self._behind_since = now
        if now - self._behind_since < STUCK_SECONDS:
            return ""
        return f"all tasks go back to a checkpoint, and user code has been in one call for {in_call_ms / 1000:.0f} s"

    def _live(self, plan: PhysicalPlan) -> None:
        generation = plan.generation
        log.info("generation %d begins with checkpoint %d", generation.number, generation.restore_from)
        codec = codec_of(plan.topology.component_config(plan.component_of(self._task)), self._load)
        restored = restored_from(self._folder, plan, self._task, codec)
        self.executor, runner = self._make(plan, [], StateSetup(self._writer.write, self._timeout_ms, restored))
        self.runner = runner
        self.executor.start()
        self._gateway.join(generation.number)
        self._started(plan)
        runner.run()

    def _failed(self, generation: int, error: Exception) -> None:
        text = str(error) if isinstance(error, UserCodeFailed) else f"{type(error).__name__}: {error}"
        log.error("generation %d cannot go on: %s", generation, text, exc_info=error)
        if not isinstance(error, UserCodeFailed):  # that one has been counted
            self._telemetry.exception(type(error).__name__, str(error), traceback.format_exc(), time.time())
        stateful = None if self.executor is None else self.executor.stateful
        report = TaskReport(generation, failed=text) if stateful is None else stateful.failed(text)
        self._gateway.tell_report(report)

    def _await_later(self, generation: int) -> PhysicalPlan:
        """The next plan of a later generation. Raises Stopped, Left."""
        while True:
            for item in self._inbox.take(None):
                match item:
                    case Stop():
                        raise Stopped
                    case MustLeave(reason):
                        raise Left(reason)
                    case PlanArrived(plan) if plan.generation.number > generation and self._task in plan.tasks():
                        return plan

    def _end(self) -> None:
        """Close the component, leave its generation, forget what has come for it. Raises LeftThreads."""
        executor, self.executor, self.runner = self.executor, None, None
        if executor is not None:
            executor.stop(now_ms())
        self._gateway.leave_generation()
        for item in self._inbox.take(0):
            if isinstance(item, PlanArrived | Stop | MustLeave):
                self._inbox.put(item)
        left = [thread.name for thread in threading.enumerate() if thread not in self._threads and thread.is_alive()]
        if left:
            raise LeftThreads(
                f"{', '.join(left)}: close() has left threads that belong to the generation before; end them there"
            )
