"""Runtime of a task: the user's component and its surroundings, the same for spouts and bolts."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from heron_instance.core.input_batch import FailureBuffer
from heron_instance.core.outbox import Flush, Outbox
from heron_instance.core.output_streams import Router
from heron_instance.core.state.task_state import INITIAL_STATE, StateSetup, TaskState
from heron_instance.core.task_metrics import CounterBuffer, TelemetrySink
from heron_instance.core.user_code import Hooks, Lock, NoLock, ThreadInspector, UserCode, UserErrors
from heron_instance.core.values_codec import make_values_codec
from heron_runtime.model.plan import PhysicalPlan
from heron_runtime.model.settings import Keys, setting
from heronry.api.component import bind_state
from heronry.api.context import TopologyContext

log = logging.getLogger(__name__)


class ExecutorDriver(Protocol):
    """Surroundings of an executor that are needed while user code runs."""

    def watch(self) -> None:
        """Take note that rows have begun to wait for a flush."""

    def post(self, flushes: list[Flush]) -> None:
        """Send these flushes."""

    def serve(self, wait_ms: float) -> None:
        """Handle arrivals, waiting up to ``wait_ms`` for the first. Raises exceptions that end the executor."""


@dataclass
class ExecutorSetup:
    """Parts of an executor. ``wall`` gives seconds since 1970, ``clock`` monotonic seconds.

    The thread that drives the executor holds ``lock`` (``user_code.py``). Without a driver emits never wait.
    """

    component: Any
    plan: PhysicalPlan
    task: int
    incarnation: int
    rng: np.random.Generator
    telemetry: TelemetrySink
    clock: Callable[[], float]
    wall: Callable[[], float]
    load: Callable[[str], Any] | None = None
    lock: Lock = field(default_factory=NoLock)
    wake: Callable[[], None] | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)  # heron.* keys
    state: StateSetup | None = None  # None without checkpoints
    threads: ThreadInspector | None = None  # to find emits of other threads
    driver: ExecutorDriver | None = None  # serves arrivals while user code runs


class TaskRuntime:
    """Component of one task with its collaborators.

    Args:
        setup: Component, plan and surroundings.
        hooks_changed: Called when a task hook is added.
    """

    def __init__(self, setup: ExecutorSetup, hooks_changed: Callable[[], None]) -> None:
        plan = setup.plan
        self.id = setup.task
        self.incarnation = setup.incarnation
        self.name = plan.component_of(setup.task)
        self.component = setup.component
        self.clock = setup.clock
        self.telemetry = setup.telemetry
        config = self.config = plan.topology.component_config(self.name)
        self.tracked = setting(config, Keys.TOPOLOGY_RELIABILITY_MODE) == "ATLEAST_ONCE"
        self.context = TopologyContext(plan, setup.task, config, setup.wake, hooks_changed)
        self.counts = CounterBuffer(setup.telemetry)
        self.user_code = UserCode(setup.clock, setup.lock, setup.wake)
        policy = str(
            setting(config, Keys.TOPOLOGY_ON_EXCEPTION) or getattr(self.component, "exception_policy", "restart")
        )
        self.keeps_state = setup.state is not None
        self.errors = UserErrors(self.name, policy, self.counts, setup.telemetry, setup.wall, strict=self.keeps_state)
        self.hooks = Hooks(self.context, setup.task, self.counts.count, setup.clock)
        self.codec = make_values_codec(config, setup.load)
        self.router = Router(plan, setup.task, setup.rng, setup.load, self.context, self.tracked)
        self.outbox = Outbox(setup.task, self.codec, setup.clock)
        self.failures = FailureBuffer(self.name, setup.task)
        restored = INITIAL_STATE if setup.state is None else setup.state.restored
        self.state = TaskState(plan, setup.task, self.component, restored, setup.wall)
        if not self.keeps_state:  # a checkpointer binds the state that it restores
            bind_state(self.component, self.state.keyed, self.state.own)
        self.threads, self.wake = setup.threads, setup.wake
        self._started = False

    def initialize(self) -> None:
        """Initialize the component. Raises the exceptions of user code."""
        with self.user_code("initialize"):
            self.component.initialize(dict(self.config), self.context)
        self._started = True

    def close(self) -> None:
        """Close the component if it was initialized. Raises nothing."""
        if not self._started:
            return
        try:
            with self.user_code("close"):
                self.component.close()
        except Exception:
            log.exception("%s.close raised", self.name)
        self.hooks.clean_up()

    def collect_metrics(self) -> None:
        """Report the user's metrics."""
        for name, metric in self.context.metrics.items():
            try:
                metric.collect(name, self.telemetry)
            except Exception:  # a metric class of the user
                log.exception("metric %s: cannot be collected", name)
