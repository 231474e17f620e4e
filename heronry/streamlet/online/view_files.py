"""The online side of a view: packed accumulators by bucket, a file for each bucket and task, replaced by rename."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from heron_runtime.files import replace_file
from heronry.streamlet.endpoints import ViewSink
from heronry.streamlet.online.state import Entry
from heronry.streamlet.program import ReduceStep
from heronry.streamlet.records import pack


class ViewFiles:
    """One task's. Closed windows stay: it is the reader, or the batch that owns their time, who drops them."""

    def __init__(self, sink: ViewSink, step: ReduceStep, index: int) -> None:
        self._root = Path(sink.path, "online")
        self._file = f"{index}.msgpack"
        self._step = step
        windowing = step.windowing
        self._head = {
            "view": sink.name,
            "monoid": step.monoid.builtin,
            "parameters": dict(step.monoid.parameters),
            "bucket_ms": None if windowing else sink.bucket_ms,
            "length_ms": windowing.window.length_ms if windowing else None,
        }

    def write(self, bucket: int, entries: list[Entry]) -> None:
        """Replace one bucket. Raises TypeError for keys or accumulators that are no plain data."""
        plain = self._step.monoid.pack
        rows: list[Any] = [[entry.key, entry.start, plain(entry.acc)] for entry in entries]
        body = {**self._head, "written_ms": int(time.time() * 1000), "rows": rows}
        folder = self._root / str(bucket)
        folder.mkdir(parents=True, exist_ok=True)
        replace_file(folder / self._file, pack(body))

    def is_gone(self, bucket: int) -> bool:
        """True if a batch owns the bucket and somebody has tidied up."""
        return not Path(self._root, str(bucket)).exists()
