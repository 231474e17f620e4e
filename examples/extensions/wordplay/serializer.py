"""A serializer: batches of values as JSON, which people can read with a debugger in the middle."""

from __future__ import annotations

import json
from typing import Any


class JsonRows:
    """``json.dumps`` refuses what JSON does not know; the tuple then fails, and its error says why."""

    def serialize(self, rows: list[tuple[Any, ...]]) -> bytes:
        """Rows become lists of lists."""
        return json.dumps(rows).encode()

    def deserialize(self, data: bytes) -> list[list[Any]]:
        """Lists will do: each is made a tuple again."""
        return list(json.loads(data))
