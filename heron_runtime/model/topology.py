"""Logical plan: the definition of a topology as frozen values.

The API creates and validates a definition. It is stored once at submit and only replaced by an update.
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


KEYED = (GroupingKind.FIELDS, GroupingKind.PARTIAL_KEY)  # some fields of a tuple determine the task that gets it


class TopologyState(StrEnum):
    """State that the user wants a topology to be in."""

    RUNNING = "running"
    PAUSED = "paused"
    KILLED = "killed"


@dataclass(frozen=True, slots=True)
class StreamSchema:
    """Output stream: its name and the names of its fields."""

    name: str = DEFAULT_STREAM
    fields: tuple[str, ...] = ()
    direct: bool = False


@dataclass(frozen=True, slots=True)
class GroupingSpec:
    """Grouping in a definition. ``python_class`` and ``arguments`` (msgpack) belong to custom groupings."""

    kind: GroupingKind
    fields: tuple[str, ...] = ()
    python_class: str = ""
    arguments: bytes = b""


@dataclass(frozen=True, slots=True)
class InputSpec:
    """Input of a component: an edge of the graph without its destination."""

    component: str
    stream: str
    grouping: GroupingSpec


@dataclass(frozen=True, slots=True)
class ComponentSpec:
    """Spout or bolt: its class, number of tasks, output streams, inputs and configuration."""

    name: str
    kind: ComponentKind
    python_class: str
    parallelism: int = 1
    outputs: tuple[StreamSchema, ...] = ()
    inputs: tuple[InputSpec, ...] = ()
    config: Mapping[str, Any] = field(default_factory=dict)

    @property
    def is_spout(self) -> bool:
        """Return True for a spout."""
        return self.kind is ComponentKind.SPOUT

    def output(self, stream: str) -> StreamSchema | None:
        """Return the schema of an output stream, or None."""
        return next((s for s in self.outputs if s.name == stream), None)


@dataclass(frozen=True, slots=True)
class Edge:
    """Edge of the graph: source component and stream, destination component, grouping."""

    source: str
    stream: str
    destination: str
    grouping: GroupingSpec


@dataclass(frozen=True, slots=True)
class TopologyDefinition:
    """Logical plan of a topology. ``id`` is the name plus a random part, new at each submit."""

    name: str
    id: str
    components: tuple[ComponentSpec, ...] = ()
    config: Mapping[str, Any] = field(default_factory=dict)

    def component(self, name: str) -> ComponentSpec:
        """Return the component of this name. Raises KeyError."""
        for spec in self.components:
            if spec.name == name:
                return spec
        raise KeyError(name)

    def edges(self) -> Iterator[Edge]:
        """Yield every edge, in definition order of the consumers."""
        for spec in self.components:
            for source in spec.inputs:
                yield Edge(source.component, source.stream, spec.name, source.grouping)

    def component_config(self, name: str) -> dict[str, Any]:
        """Return the topology's configuration, overridden by that of the component."""
        return {**self.config, **self.component(name).config}

    def reachable_from(self, name: str) -> frozenset[str]:
        """Return all components that tuples of ``name`` can reach. ``name`` is included only if it is in a cycle."""
        seen: set[str] = set()
        todo = [name]
        while todo:
            here = todo.pop()
            for edge in self.edges():
                if edge.source == here and edge.destination not in seen:
                    seen.add(edge.destination)
                    todo.append(edge.destination)
        return frozenset(seen)
