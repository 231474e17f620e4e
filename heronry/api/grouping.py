"""``Grouping``: how a bolt's tasks share the tuples of a stream they read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Protocol

from heron_runtime.model.topology import KEYED, GroupingKind


class CustomGrouping(Protocol):
    """What a class given to ``Grouping.custom`` offers. One object of it is made in every emitting task."""

    def prepare(self, context: Any, component: str, stream: str, target_tasks: Sequence[int]) -> None:
        """Called once, with the emitting component, the stream, and the tasks of the reader in order."""

    def choose_tasks(self, values: Sequence[Any]) -> list[int]:
        """The tasks that get a copy of these values: any of ``target_tasks``, or none."""


class Grouping:
    """A grouping. Use the constants, or ``Grouping.fields``, ``Grouping.partial_key`` and ``Grouping.custom``.

    ``SHUFFLE`` deals tuples out evenly; ``ALL`` gives each task a copy; ``GLOBAL`` (alias ``LOWEST``) sends everything
    to the task with the lowest id; ``NONE`` means "I do not care" and shuffles; ``LOCAL_OR_SHUFFLE`` prefers tasks in
    the emitter's container; ``DIRECT`` lets the emitter of a direct stream name the task.
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
        """Tuples with equal values in these fields go to the same task."""
        flat: list[str] = []
        for name in names:
            if isinstance(name, list | tuple):
                flat.extend(name)
            else:
                flat.append(name)  # type: ignore[arg-type]  # a wrong type is reported with the topology
        return cls(GroupingKind.FIELDS, flat)

    @classmethod
    def partial_key(cls, *names: str | Sequence[str]) -> Grouping:
        """Tuples with equal values in these fields go to one of two tasks, the one that has got less so far.

        For keys so frequent that one task cannot take them. Each of the two tasks sees a part of a key's tuples, so
        a bolt behind it has to put the parts together: it reads with ``Grouping.fields``
        (``docs/explanation/groupings.md``).
        """
        return cls(GroupingKind.PARTIAL_KEY, cls.fields(*names).field_names)

    @classmethod
    def custom(cls, target: type | str, **arguments: Any) -> Grouping:
        """Tasks chosen by a class of the user's (see ``CustomGrouping``), by ``"module:Class"``, or by the name of a
        grouping that is plugged in (``docs/how-to/extending.md``).

        ``arguments`` are given to its constructor in every emitting task and must be plain data.
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
