"""Declaration of an output stream of a component."""

from __future__ import annotations

from collections.abc import Iterable

from heron_runtime.model.ids import DEFAULT_STREAM


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
