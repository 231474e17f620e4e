"""What a serializer of one's own offers (setting ``topology.serializer``): rows of values to bytes and back."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Protocol


class Serializer(Protocol):
    """One object is made, without arguments, in every instance. What it raises fails the tuples concerned."""

    def serialize(self, rows: list[tuple[Any, ...]]) -> bytes:
        """The values of a batch of tuples, one row each."""

    def deserialize(self, data: bytes) -> Iterable[Sequence[Any]]:
        """The rows, equal to those that went in and in their order."""
