"""The processes of a container with their *slots*: a pure function of the packing plan and the configuration.

Which they are is said in ``heron_runtime.model.containers``. A slot is a process's place in the container's heartbeat
file, which it keeps for as long as the container lives.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from heron_runtime.model.containers import INSTANCE, METRICS_MANAGER, processes_in
from heron_runtime.model.plan import PackingPlan


@dataclass(frozen=True, slots=True)
class ProcessSpec:
    """One process that should run. ``kind`` is the room's name, ``name`` names the log file and the title."""

    slot: int
    kind: str
    name: str
    component: str = ""
    task: int = 0

    @property
    def stops_last(self) -> bool:
        """True for the metrics manager: the others send it their last reports when they are asked to stop."""
        return self.kind == METRICS_MANAGER

    @property
    def is_instance(self) -> bool:
        """True for the process of a task."""
        return self.kind == INSTANCE


def processes_of(
    container: int, plan: PackingPlan, config: Mapping[str, Any], known: Mapping[int, int] | None = None
) -> list[ProcessSpec]:
    """The processes of any container. Raises KeyError when the topology has no such container.

    ``known`` (task to slot) keeps the slots of tasks that run already; new tasks get slots that nobody has.
    """
    slots = dict(known or {})
    specs: list[ProcessSpec] = []
    for rank, placed in enumerate(processes_in(container, plan, config)):
        slot = slots.setdefault(placed.task, max(slots.values(), default=1) + 1) if placed.task else rank
        specs.append(ProcessSpec(slot, *placed))
    return specs
