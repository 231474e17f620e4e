"""What the executor of a task is made of."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from heron_instance.core.own_thread import Threads
from heron_instance.core.state.stateful import StateSetup
from heron_instance.core.telemetry import TelemetrySink
from heron_instance.core.user_code import Lock, NoLock
from heron_runtime.model.plan import PhysicalPlan


@dataclass
class Setup:
    """Everything an executor is made of. ``wall`` gives seconds since 1970, ``clock`` monotonic seconds.

    Whoever drives the executor holds ``lock`` (``user_code.py``).
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
    state: StateSetup | None = None  # where the state of tasks is kept
    threads: Threads | None = None  # who emits there
