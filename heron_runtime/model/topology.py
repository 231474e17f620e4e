"""The logical plan: what a user wrote, as frozen values.

A definition is made by the API (which validates it), stored once at submit and never changed while the topology runs.
Configuration values are plain data (None, bool, int, float, str, bytes, list, dict), so that every process can read
them without importing the user's code.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from heron_runtime.model.ids import DEFAULT_STREAM


class ComponentKind(StrEnum):
    """Kind of a component."""

    SPOUT = "spout"
    BOLT = "bolt"


class GroupingKind(StrEnum):
    """Distribution of the tuples of a stream among the tasks of a consumer."""

    SHUFFLE = "shuffle"
    FIELDS = "fields"
    PARTIAL_KEY = "partial_key"
    ALL = "all"
    GLOBAL = "global"
    NONE = "none"
    LOCAL_OR_SHUFFLE = "local_or_shuffle"
    DIRECT = "direct"
    CUSTOM = "custom"


KEYED = (GroupingKind.FIELDS, GroupingKind.PARTIAL_KEY)  # which task gets a tuple is seen from some of its fields


class TopologyState(StrEnum):
    """State that the user wants a topology to be in."""

    RUNNING = "running"
    PAUSED = "paused"
    KILLED = "killed"


@dataclass(frozen=True, slots=True)
class StreamSchema:
    """An output stream: its name and the names of its fields."""

    name: str = DEFAULT_STREAM
    fields: tuple[str, ...] = ()
    direct: bool = False


@dataclass(frozen=True, slots=True)
class GroupingSpec:
    """A grouping as it is stored. ``python_class`` and ``arguments`` (msgpack) belong to custom groupings."""

    kind: GroupingKind
    fields: tuple[str, ...] = ()
    python_class: str = ""
    arguments: bytes = b""


@dataclass(frozen=True, slots=True)
class InputSpec:
    """One edge of the graph, seen from the consumer."""

    component: str
    stream: str
    grouping: GroupingSpec


@dataclass(frozen=True, slots=True)
class ComponentSpec:
    """A spout or bolt: where its code is, how many tasks it has, what it emits and reads."""

    name: str
    kind: ComponentKind
    python_class: str
    parallelism: int = 1
    outputs: tuple[StreamSchema, ...] = ()
    inputs: tuple[InputSpec, ...] = ()
    config: Mapping[str, Any] = field(default_factory=dict)

    @property
    def is_spout(self) -> bool:
        """True for a spout."""
        return self.kind is ComponentKind.SPOUT

    def output(self, stream: str) -> StreamSchema | None:
        """The schema of one output stream, or None."""
        return next((s for s in self.outputs if s.name == stream), None)


@dataclass(frozen=True, slots=True)
class Edge:
    """One edge of the graph, complete: source component and stream, destination component, grouping."""

    source: str
    stream: str
    destination: str
    grouping: GroupingSpec


@dataclass(frozen=True, slots=True)
class TopologyDefinition:
    """The whole logical plan. ``id`` is the name plus a random part, new at each submit."""

    name: str
    id: str
    components: tuple[ComponentSpec, ...] = ()
    config: Mapping[str, Any] = field(default_factory=dict)

    def component(self, name: str) -> ComponentSpec:
        """The component of this name. Raises KeyError."""
        for spec in self.components:
            if spec.name == name:
                return spec
        raise KeyError(name)

    def edges(self) -> Iterator[Edge]:
        """Every edge, in definition order of the consumers."""
        for spec in self.components:
            for source in spec.inputs:
                yield Edge(source.component, source.stream, spec.name, source.grouping)

    def component_config(self, name: str) -> dict[str, Any]:
        """The topology's configuration with the component's own laid over it."""
        return {**self.config, **self.component(name).config}

    def reachable_from(self, name: str) -> frozenset[str]:
        """Every component that tuples of ``name`` can reach, ``name`` itself excluded."""
        seen: set[str] = set()
        todo = [name]
        while todo:
            here = todo.pop()
            for edge in self.edges():
                if edge.source == here and edge.destination not in seen:
                    seen.add(edge.destination)
                    todo.append(edge.destination)
        return frozenset(seen)
