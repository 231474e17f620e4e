"""Serializer that encodes batches as JSON, which is readable in a debugger."""

from __future__ import annotations

import json
from typing import Any


class JsonRows:
    """JSON serializer. A value that JSON cannot represent fails its tuple with the error of ``json.dumps``."""

    def serialize(self, rows: list[tuple[Any, ...]]) -> bytes:
        """Encode rows as lists of lists."""
        return json.dumps(rows).encode()

    def deserialize(self, data: bytes) -> list[list[Any]]:
        """Decode rows. Heronry converts the lists to tuples."""
        return list(json.loads(data))
