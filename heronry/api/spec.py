"""Declarations of components, as ``WordSpout.spec(...)`` returns them, and of their output streams.

A declaration is not checked. The topology reports all problems at once, with the names of the components, which may be
the attributes that the declarations are assigned to.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias

from heron_runtime.model.ids import DEFAULT_STREAM
from heronry.api.grouping import Grouping


class ComponentDeclaration:
    """Declaration of a component. ``declaration["errors"]`` names one of its streams in ``inputs``."""

    __slots__ = ("component_class", "config", "inputs", "name", "optional_outputs", "par")

    def __init__(
        self,
        component_class: type,
        name: str | None = None,
        par: int | None = None,
        inputs: Inputs | None = None,
        config: Mapping[str, Any] | None = None,
        optional_outputs: Sequence[str | Stream] | None = None,
    ) -> None:
        self.component_class = component_class
        self.name = name
        self.par = par
        self.inputs = inputs
        self.config = config
        self.optional_outputs = optional_outputs

    def __getitem__(self, stream: str) -> StreamReference:
        return StreamReference(self, stream)

    def __repr__(self) -> str:
        cls = getattr(self.component_class, "__name__", repr(self.component_class))
        return f"{cls}.spec({f'name={self.name!r}' if self.name else ''})"


class StreamReference:
    """Reference to one stream of a declared component."""

    __slots__ = ("component", "stream")

    def __init__(self, component: ComponentDeclaration, stream: str = DEFAULT_STREAM) -> None:
        self.component = component
        self.stream = stream

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, StreamReference):
            return NotImplemented
        return self.component is other.component and self.stream == other.stream

    def __hash__(self) -> int:
        return hash((id(self.component), self.stream))

    def __repr__(self) -> str:
        return f"{self.component!r}[{self.stream!r}]"


# A declaration (its default stream), one of its streams, the name of a component, or (name, stream).
Source: TypeAlias = ComponentDeclaration | StreamReference | str | tuple[str, str]
# The keys of a mapping are sources. Key types are invariant, so that Any is needed for variables of one kind.
Inputs: TypeAlias = Mapping[Any, Grouping] | Sequence[Source]


class Stream:
    """An output stream: field names, name, and whether it is for direct grouping.

    ``outputs = ["word", "count"]`` is short for ``outputs = [Stream(fields=["word", "count"])]``. On a direct stream
    the emitter names the receiving task (``emit(..., direct_task=7)``), and every reader uses ``Grouping.DIRECT``.
    """

    __slots__ = ("direct", "fields", "name")

    def __init__(self, fields: Iterable[str] = (), name: str = DEFAULT_STREAM, direct: bool = False) -> None:
        # A single string is often meant as a list of one field.
        self.fields: tuple[str, ...] = (fields,) if isinstance(fields, str) else tuple(fields)
        self.name = name
        self.direct = direct

    def __repr__(self) -> str:
        direct = ", direct=True" if self.direct else ""
        return f"Stream(fields={list(self.fields)}, name={self.name!r}{direct})"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Stream):
            return NotImplemented
        return (self.fields, self.name, self.direct) == (other.fields, other.name, other.direct)

    def __hash__(self) -> int:
        return hash((self.fields, self.name, self.direct))
