"""Block of records that travel together, with event times and ids if a downstream step needs them."""

from __future__ import annotations

from typing import Any

from heron_runtime.model.copies import copies


class Block:
    """Columns of equal length. ``times_ms`` and ``ids`` (message id, index) are None if they are not needed."""

    __slots__ = ("ids", "records", "times_ms")

    def __init__(
        self, records: list[Any], times_ms: list[int] | None = None, ids: list[tuple[str, str]] | None = None
    ) -> None:
        self.records = records
        self.times_ms = times_ms
        self.ids = ids

    def like(self, records: list[Any]) -> Block:
        """Return a block of other records, one for each of these."""
        return Block(records, self.times_ms, self.ids)

    def copied(self) -> Block:
        """Return a block whose records share nothing mutable with these."""
        return self.like(copies(self.records))

    def picked(self, places: list[int]) -> Block:
        """Return a block of the records at these indices."""
        if len(places) == len(self.records):
            return self
        times, ids = self.times_ms, self.ids
        return Block(
            [self.records[i] for i in places],
            None if times is None else [times[i] for i in places],
            None if ids is None else [ids[i] for i in places],
        )

    def flattened(self, lists: list[list[Any]]) -> Block:
        """Return a block of the elements of one list for each of these records, in order."""
        times, ids = self.times_ms, self.ids
        return Block(
            [element for elements in lists for element in elements],
            None if times is None else [t for t, elements in zip(times, lists, strict=True) for _ in elements],
            None
            if ids is None
            else [
                (message, f"{index}.{place}" if index else str(place))
                for (message, index), elements in zip(ids, lists, strict=True)
                for place in range(len(elements))
            ],
        )

    def __len__(self) -> int:
        return len(self.records)
