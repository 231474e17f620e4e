"""Tuples as user code receives them. Their creation is cheap enough for a million tuples a second.

A tuple is three words: its values, its place in the input batch, and the batch. Everything else (component, stream,
task, fields, roots, keys, whether it is acked) is the batch's and is looked up only when asked for. Making a thousand
tuples is one ``map`` in C (``TupleBatch.__iter__``), 30 ns each.

``TupleBatch`` is what ``process_batch`` gets. Iterating it gives tuples; ``rows`` and ``column(name)`` give bare values
without making a single tuple: ``self.counts.update(tuples.column("word"))``.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from itertools import repeat
from operator import itemgetter
from typing import Any, overload

import msgspec

from heron_runtime.model.ids import DEFAULT_STREAM

SYSTEM_COMPONENT = "__system"
TICK_STREAM = "__tick"


class Origin:
    """Origin of the tuples of a batch. Batches of several frames have several source tasks."""

    __slots__ = ("component", "fields", "first_id", "starts", "stream", "task_of_start")

    def __init__(
        self,
        component: str,
        stream: str,
        fields: tuple[str, ...],
        task: int | None = None,
        first_id: int = 0,
    ) -> None:
        self.component = component
        self.stream = stream
        self.fields = fields
        self.first_id = first_id
        self.starts: list[int] = [0]
        self.task_of_start: list[int | None] = [task]

    def task_at(self, index: int) -> int | None:
        """Return the task that emitted the tuple at ``index``, None for a tick."""
        if len(self.starts) == 1:
            return self.task_of_start[0]
        return self.task_of_start[bisect_right(self.starts, index) - 1]

    def position_of(self, name: str) -> int:
        """Return the position of a field. Raises KeyError with the names of the fields."""
        try:
            return self.fields.index(name)
        except ValueError:
            known = ", ".join(self.fields) or "none"
            raise KeyError(f"no field {name!r} in stream {self.component}/{self.stream} (fields: {known})") from None


class Tuple(msgspec.Struct, gc=False, eq=False):
    """One input tuple: ``tup.values``, ``tup["word"]``, ``tup[0]``.

    Equal to any other object that stands for the same tuple; may be kept in sets and dicts, also after ``process``
    has returned (that is how acks are delayed).
    """

    values: tuple[Any, ...]
    index: int
    batch: Any

    @classmethod
    def of(
        cls,
        values: Sequence[Any],
        fields: Sequence[str] = (),
        component: str = "test",
        stream: str = DEFAULT_STREAM,
        task: int | None = 1,
    ) -> Tuple:
        """Return a tuple for unit tests of user code."""
        return cls(tuple(values), 0, Origin(component, stream, tuple(fields), task))

    @property
    def id(self) -> int:
        """Number that is unique in the process of the instance."""
        return int(self.batch.first_id) + self.index

    @property
    def component(self) -> str:
        """Component that emitted the tuple."""
        return str(self.batch.component)

    @property
    def stream(self) -> str:
        """Stream of the tuple."""
        return str(self.batch.stream)

    @property
    def task(self) -> int | None:
        """Task that emitted the tuple, None for a tick."""
        task: int | None = self.batch.task_at(self.index)
        return task

    @property
    def fields(self) -> tuple[str, ...]:
        """Names of the fields."""
        fields: tuple[str, ...] = self.batch.fields
        return fields

    @property
    def is_tick(self) -> bool:
        """True for a tick tuple (``process_tick``)."""
        return bool(self.batch.stream == TICK_STREAM)

    def as_dict(self) -> dict[str, Any]:
        """Return the values by field name."""
        return dict(zip(self.batch.fields, self.values, strict=True))

    def get(self, field: str, default: Any = None) -> Any:
        """Return the value of a field, or ``default`` if the stream does not have it."""
        return self.values[self.batch.fields.index(field)] if field in self.batch.fields else default

    def __getitem__(self, field: str | int) -> Any:
        if field.__class__ is str:
            return self.values[self.batch.position_of(field)]
        return self.values[field]  # type: ignore[index]  # a str has been dealt with

    def __len__(self) -> int:
        return len(self.values)

    def __iter__(self) -> Iterator[Any]:
        return iter(self.values)

    def __eq__(self, other: object) -> bool:
        return other.__class__ is Tuple and other.batch is self.batch and other.index == self.index

    def __hash__(self) -> int:
        return hash((id(self.batch), self.index))

    def __repr__(self) -> str:
        return f"Tuple({self.component}/{self.stream}, {self.values!r})"


class TupleBatch(Sequence[Tuple]):
    """Sequence of the tuples of one input batch, all of one stream. Tuples are created on access."""

    __slots__ = ("_rows", "origin")

    def __init__(self, origin: Any, rows: list[tuple[Any, ...]]) -> None:
        self.origin = origin
        self._rows = rows

    @classmethod
    def of(
        cls,
        rows: Sequence[Sequence[Any]],
        fields: Sequence[str] = (),
        component: str = "test",
        stream: str = DEFAULT_STREAM,
        task: int | None = 1,
    ) -> TupleBatch:
        """Return a batch for unit tests of user code."""
        return cls(Origin(component, stream, tuple(fields), task), [tuple(row) for row in rows])

    @property
    def rows(self) -> list[tuple[Any, ...]]:
        """Values of each tuple, as Python tuples. Do not modify the list."""
        return self._rows

    def column(self, field: str | int) -> list[Any]:
        """Return all values of one field. Raises KeyError for an unknown field."""
        position = field if isinstance(field, int) else self.origin.position_of(field)
        return list(map(itemgetter(position), self._rows))

    @property
    def component(self) -> str:
        """Component that emitted the tuples."""
        return str(self.origin.component)

    @property
    def stream(self) -> str:
        """Stream of the tuples."""
        return str(self.origin.stream)

    @property
    def fields(self) -> tuple[str, ...]:
        """Names of the fields."""
        fields: tuple[str, ...] = self.origin.fields
        return fields

    def as_dicts(self) -> list[Mapping[str, Any]]:
        """Return the values of each tuple by field name."""
        return [dict(zip(self.fields, row, strict=True)) for row in self._rows]

    def __len__(self) -> int:
        return len(self._rows)

    def __iter__(self) -> Iterator[Tuple]:
        return map(Tuple, self._rows, range(len(self._rows)), repeat(self.origin))

    @overload
    def __getitem__(self, index: int) -> Tuple: ...
    @overload
    def __getitem__(self, index: slice) -> list[Tuple]: ...
    def __getitem__(self, index: int | slice) -> Tuple | list[Tuple]:
        if isinstance(index, slice):
            return [Tuple(self._rows[i], i, self.origin) for i in range(*index.indices(len(self._rows)))]
        if index < 0:
            index += len(self._rows)
        return Tuple(self._rows[index], index, self.origin)

    def __repr__(self) -> str:
        return f"TupleBatch({self.component}/{self.stream}, {len(self._rows)} tuples)"


def tick_tuple(number: int) -> Tuple:
    """Return a tick tuple, which has no values and no roots. ``number`` counts the ticks of the instance."""
    return Tuple((), 0, Origin(SYSTEM_COMPONENT, TICK_STREAM, (), None, -1 - number))
