"""Groupings: distribution of the tuples of a stream over the tasks of a bolt."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from heron_runtime.model.topology import KEYED, GroupingKind

if TYPE_CHECKING:
    from heronry.api.context import TopologyContext


class CustomGrouping(Protocol):
    """Interface of a class given to ``Grouping.custom``. Each emitting task creates one instance."""

    def prepare(self, context: TopologyContext, component: str, stream: str, target_tasks: Sequence[int]) -> None:
        """Prepare the grouping. Called once.

        Args:
            context: The context of the emitting task.
            component: Name of the emitting component.
            stream: Name of the stream.
            target_tasks: Tasks of the reader, in order.
        """

    def choose_tasks(self, values: Sequence[Any]) -> list[int]:
        """Return the tasks that receive a copy of these values: any of ``target_tasks``, or none."""


class Grouping:
    """A grouping: one of the constants, ``Grouping.fields``, ``Grouping.partial_key`` or ``Grouping.custom``.

    ``SHUFFLE`` distributes tuples evenly. ``ALL`` sends a copy to each task. ``GLOBAL`` (alias ``LOWEST``) sends all
    tuples to the task with the lowest id. ``NONE`` leaves the choice to Heronry, which shuffles. ``LOCAL_OR_SHUFFLE``
    prefers tasks in the container of the emitter. With ``DIRECT`` the emitter of a direct stream names the task.
    """

    __slots__ = ("arguments", "field_names", "kind", "target")

    SHUFFLE: ClassVar[Grouping]
    ALL: ClassVar[Grouping]
    GLOBAL: ClassVar[Grouping]
    LOWEST: ClassVar[Grouping]
    NONE: ClassVar[Grouping]
    LOCAL_OR_SHUFFLE: ClassVar[Grouping]
    DIRECT: ClassVar[Grouping]

    def __init__(
        self,
        kind: GroupingKind,
        field_names: Sequence[str] = (),
        target: type | str | None = None,
        arguments: Mapping[str, Any] | None = None,
    ) -> None:
        self.kind = kind
        self.field_names = tuple(field_names)
        self.target = target
        self.arguments: dict[str, Any] = dict(arguments or {})

    @classmethod
    def fields(cls, *names: str | Sequence[str]) -> Grouping:
        """Send tuples with equal values in these fields to the same task."""
        flat: list[str] = []
        for name in names:
            if isinstance(name, list | tuple):
                flat.extend(name)
            else:
                flat.append(name)  # type: ignore[arg-type]  # a wrong type is reported with the topology
        return cls(GroupingKind.FIELDS, flat)

    @classmethod
    def partial_key(cls, *names: str | Sequence[str]) -> Grouping:
        """Send tuples with equal values in these fields to the less loaded one of two tasks.

        For keys that are too frequent for one task. Each of the two tasks receives a part of a key's tuples, so a
        downstream bolt that reads with ``Grouping.fields`` must combine them (``docs/explanation/groupings.md``).
        """
        return cls(GroupingKind.PARTIAL_KEY, cls.fields(*names).field_names)

    @classmethod
    def custom(cls, target: type | str, **arguments: Any) -> Grouping:
        """Let a user class choose the tasks.

        Args:
            target: A class with the methods of ``CustomGrouping``, ``"module:Class"``, or the name of a grouping that
                is plugged in (``docs/how-to/extending.md``).
            arguments: Arguments of its constructor in every emitting task; plain data.
        """
        return cls(GroupingKind.CUSTOM, (), target, arguments)

    def __repr__(self) -> str:
        if self.kind in KEYED:
            return f"Grouping.{self.kind.value}({', '.join(map(repr, self.field_names))})"
        if self.kind is GroupingKind.CUSTOM:
            return f"Grouping.custom({self.target!r})"
        return f"Grouping.{self.kind.name}"


Grouping.SHUFFLE = Grouping(GroupingKind.SHUFFLE)
Grouping.ALL = Grouping(GroupingKind.ALL)
Grouping.GLOBAL = Grouping.LOWEST = Grouping(GroupingKind.GLOBAL)
Grouping.NONE = Grouping(GroupingKind.NONE)
Grouping.LOCAL_OR_SHUFFLE = Grouping(GroupingKind.LOCAL_OR_SHUFFLE)
Grouping.DIRECT = Grouping(GroupingKind.DIRECT)
