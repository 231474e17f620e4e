"""Interface of user serializers (setting ``topology.serializer``)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Protocol


class Serializer(Protocol):
    """Serializer of rows of values. Each instance creates one, without arguments. Its exceptions fail the tuples."""

    def serialize(self, rows: list[tuple[Any, ...]]) -> bytes:
        """Return the bytes of a batch of rows."""

    def deserialize(self, data: bytes) -> Iterable[Sequence[Any]]:
        """Return the rows, equal to the original ones and in their order."""
