"""Files of a view, written online: packed accumulators by bucket.

There is one file for each bucket and task, which is replaced when a checkpoint is complete. A further file states the
progress of each task (``heronry.pipeline.views.settled_ms``).

A bucket that its task drops, to keep memory bounded, is *settled*: its file is renamed to ``INDEX-LIFE-CHECKPOINT``,
which is never written again. Records that arrive for it later go to a new file beside it. Readers add up the files.
"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

from heron_runtime.files import replace_file
from heronry.api.state import Checkpoint
from heronry.streamlet.endpoints import ViewSink
from heronry.streamlet.online.state import ReducerEntry
from heronry.streamlet.online.writers import StagedWriter, TaskOf
from heronry.streamlet.program import ReduceStep
from heronry.streamlet.records import pack

ONLINE, PROGRESS, SETTLED = "online", "progress", "settled"
SUFFIX = ".msgpack"


class ViewBucketFiles(StagedWriter):
    """Writer of the view files of one task.

    Closed windows stay: they are removed by the reader, or by the batch that owns their time range.
    """

    def __init__(self, sink: ViewSink, step: ReduceStep, task: TaskOf) -> None:
        super().__init__(step.name, Path(sink.path), task)
        self._told: int | None = -1
        self._step = step
        self._settled: list[int] = []
        windowing = step.windowing
        self._length_ms = windowing.window.length_ms if windowing else sink.bucket_ms
        self._head = {
            "view": sink.name,
            "monoid": step.monoid.builtin,
            "parameters": dict(step.monoid.parameters),
            "bucket_ms": None if windowing else sink.bucket_ms,
            "length_ms": windowing.window.length_ms if windowing else None,
        }

    def begin(self) -> None:
        """Mark the progress of the task as unknown, whatever an earlier topology has stated."""
        progress = self.root / PROGRESS / f"{self._task.number}.json"
        progress.parent.mkdir(parents=True, exist_ok=True)
        replace_file(progress, json.dumps({"watermark_ms": None, "of": self._task.of}))

    def write(self, bucket: int, entries: list[ReducerEntry], index: int | None = None) -> None:
        """Replace the file of one bucket.

        Raises:
            TypeError: A key or accumulator is not plain data.
        """
        plain = self._step.monoid.pack
        rows: list[Any] = [[entry.key, entry.start, plain(entry.acc)] for entry in entries]
        data = pack({**self._head, "written_ms": int(time.time() * 1000), "rows": rows})
        file = self._task.number if index is None else index
        self._staging.file(f"{ONLINE}/{bucket}/{file}{SUFFIX}").write_bytes(data)

    def settle(self, bucket: int) -> None:
        """Keep the current file of the bucket as it is. The bucket must not be one that this checkpoint replaces."""
        self._settled.append(bucket)

    def reached(self, watermark_ms: int | None) -> None:
        """State the progress of event time over all sources.

        Earlier records are in the buckets. None means that the progress is not known (yet).
        """
        if watermark_ms != self._told:
            text = json.dumps({"watermark_ms": watermark_ms, "of": self._task.of})
            self._staging.file(f"{PROGRESS}/{self._task.number}.json").write_text(text)
            self._told = watermark_ms

    def open_buckets(self, index: int, closed_ms: int | None) -> list[int]:
        """Return the buckets that a task of this index has written and may write again."""
        found = [int(path.parent.name) for path in self.root.glob(f"{ONLINE}/*/{index}{SUFFIX}")]
        return [start for start in found if closed_ms is None or start + self._length_ms > closed_ms]

    def _flush(self, name: str) -> None:
        for bucket in self._settled:
            settled = f"{self._task.number}-{name.removeprefix(self._name + '-')}{SUFFIX}"
            self._staging.file(f"{SETTLED}/{bucket}").write_text(json.dumps([self._task.number, settled]))
        self._settled.clear()

    def prepare(self, checkpoint: Checkpoint, final: bool) -> bool:
        """Prepare the buckets that were written.

        Raises:
            OSError: A file could not be written.
        """
        return super().prepare(checkpoint, False)

    def commit(self, token: str, certain: bool = False) -> None:
        """Make the buckets visible, settled ones first. Idempotent.

        Raises:
            OutputIsGone: Files are certain to have been prepared, and are lost.
        """
        staged = self._staging.place_of(token)
        for mark in sorted(staged.glob(f"{SETTLED}/*")):
            index, name = json.loads(mark.read_bytes())
            folder = self.root / ONLINE / mark.name
            if (folder / f"{index}{SUFFIX}").exists() and not (folder / name).exists():
                os.replace(folder / f"{index}{SUFFIX}", folder / name)
            mark.unlink()
        for path in staged.glob(f"{ONLINE}/*/*{SUFFIX}"):
            self._forget_earlier(self.root / ONLINE / path.parent.name, path.stem)
        super().commit(token, certain)

    def _forget_earlier(self, folder: Path, index: str) -> None:
        """Remove files that an earlier topology has settled. They were counted from the same records."""
        for old in folder.glob(f"{index}-*{SUFFIX}"):
            if old.name.split("-")[1] != f"{self._task.life:013d}":
                old.unlink(missing_ok=True)
