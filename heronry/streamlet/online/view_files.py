"""The online side of a view: packed accumulators by bucket, a file for each bucket and task, replaced by rename; and
how far each task is (``heronry.pipeline.views.settled_ms``)."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

from heron_runtime.files import replace_file
from heronry.streamlet.endpoints import ViewSink
from heronry.streamlet.online.state import Entry
from heronry.streamlet.program import ReduceStep
from heronry.streamlet.records import pack

PROGRESS = "progress"  # below the view's folder: a file for each task, read by heronry/pipeline/views.py


class ViewFiles:
    """One task's. Closed windows stay: it is the reader, or the batch that owns their time, who drops them."""

    def __init__(self, sink: ViewSink, step: ReduceStep, index: int, of: int = 1) -> None:
        self._root = Path(sink.path, "online")
        self._progress = Path(sink.path, PROGRESS, f"{index}.json")
        self._of = of
        self._told: int | None = -1
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

    def reached(self, watermark_ms: int | None) -> None:
        """Say how far event time is, all sources seen: what is before is in the buckets. None: not known (yet).
        Raises OSError."""
        if watermark_ms != self._told:
            self._progress.parent.mkdir(parents=True, exist_ok=True)
            replace_file(self._progress, json.dumps({"watermark_ms": watermark_ms, "of": self._of}))
            self._told = watermark_ms

    def is_gone(self, bucket: int) -> bool:
        """True if a batch owns the bucket and somebody has tidied up."""
        return not Path(self._root, str(bucket)).exists()
