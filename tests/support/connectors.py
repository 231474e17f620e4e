"""Inputs to run a connector outside the engine: a task's place, checkpoints and tuples."""

from __future__ import annotations

from typing import Any

from heronry import Checkpoint
from heronry.api.tuples import Tuple


class TaskPlace:
    """Subset of a task's context that connectors use. ``sources``: emitted fields by component."""

    def __init__(
        self, component: str = "sink", task: int = 1, tasks: tuple[int, ...] = (1, 2), topology: str = "Topology",
        life: int = 1, **sources: tuple[str, ...],
    ) -> None:  # fmt: skip
        self._id = f"{topology}-{life}"
        self._component, self._task, self._tasks, self._topology = component, task, tasks, topology
        self._sources = sources

    def get_topology_name(self) -> str:
        return self._topology

    def get_topology_id(self) -> str:
        return self._id

    def get_component_id(self) -> str:
        return self._component

    def get_task_id(self) -> int:
        return self._task

    def get_component_tasks(self, component: str) -> list[int]:
        return list(self._tasks)

    def get_sources(self) -> dict[tuple[str, str], str]:
        return {(name, "default"): "shuffle" for name in self._sources}

    def get_fields(self, component: str, stream: str) -> tuple[str, ...]:
        return self._sources[component]


class Recorded:
    """Mixin with the interface that the engine gives a source that keeps positions; derive from this and the source."""

    def __init__(self, keyed: dict[str, Any]) -> None:
        self.keyed = keyed
        self.found: list[list[Any]] = []

    def emit_many(self, rows: Any, *_: Any, **__: Any) -> None:
        self.found += rows

    def owned_splits(self) -> list[str]:
        return [name for name, _ in self.splits()]  # type: ignore[attr-defined]


def made(sink: Any, config: dict[str, Any], place: TaskPlace | None = None) -> Any:
    """Return the component, initialised."""
    sink.initialize(config, place or TaskPlace())
    return sink


def checkpoint(number: int, generation: int = 1, task: int = 1) -> Checkpoint:
    """Return a checkpoint with the runtime's naming."""
    return Checkpoint(number, generation, f"{generation}-{number}-{task}-abc")


def row(**values: Any) -> Tuple:
    """Return a tuple with these fields."""
    return Tuple.of(list(values.values()), list(values))
