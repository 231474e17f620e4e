"""The online side of a view: packed accumulators by bucket, a file for each bucket and task, replaced when a checkpoint
is complete; and how far each task is (``heronry.pipeline.views.settled_ms``).

A bucket that its task lets go of, to keep memory bounded, is *settled*: its file gets a name that nobody writes again,
``INDEX-LIFE-CHECKPOINT``. What comes for it later begins anew beside it; readers add up.
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
    """One task's. Closed windows stay: it is the reader, or the batch that owns their time, who drops them."""

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
        """How far the task is is not known, whatever an earlier topology has said."""
        progress = self.root / PROGRESS / f"{self._task.number}.json"
        progress.parent.mkdir(parents=True, exist_ok=True)
        replace_file(progress, json.dumps({"watermark_ms": None, "of": self._task.of}))

    def write(self, bucket: int, entries: list[ReducerEntry], index: int | None = None) -> None:
        """Replace one bucket. Raises TypeError for keys or accumulators that are no plain data."""
        plain = self._step.monoid.pack
        rows: list[Any] = [[entry.key, entry.start, plain(entry.acc)] for entry in entries]
        data = pack({**self._head, "written_ms": int(time.time() * 1000), "rows": rows})
        file = self._task.number if index is None else index
        self._staging.file(f"{ONLINE}/{bucket}/{file}{SUFFIX}").write_bytes(data)

    def settle(self, bucket: int) -> None:
        """The file that is there stays as it is. Not for one that this checkpoint replaces."""
        self._settled.append(bucket)

    def reached(self, watermark_ms: int | None) -> None:
        """Say how far event time is, all sources seen: what is before is in the buckets. None: not known (yet)."""
        if watermark_ms != self._told:
            text = json.dumps({"watermark_ms": watermark_ms, "of": self._task.of})
            self._staging.file(f"{PROGRESS}/{self._task.number}.json").write_text(text)
            self._told = watermark_ms

    def open_buckets(self, index: int, closed_ms: int | None) -> list[int]:
        """Those that a task of this index has written and may write again."""
        found = [int(path.parent.name) for path in self.root.glob(f"{ONLINE}/*/{index}{SUFFIX}")]
        return [start for start in found if closed_ms is None or start + self._length_ms > closed_ms]

    def _flush(self, name: str) -> None:
        for bucket in self._settled:
            settled = f"{self._task.number}-{name.removeprefix(self._name + '-')}{SUFFIX}"
            self._staging.file(f"{SETTLED}/{bucket}").write_text(json.dumps([self._task.number, settled]))
        self._settled.clear()

    def prepare(self, checkpoint: Checkpoint, final: bool) -> bool:
        """The buckets that were written. Raises OSError."""
        return super().prepare(checkpoint, False)

    def commit(self, token: str, certain: bool = False) -> None:
        """Settled buckets first; a second time nothing is left to do. Raises OutputIsGone."""
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
        """What an earlier topology has settled was counted from the same records."""
        for old in folder.glob(f"{index}-*{SUFFIX}"):
            if old.name.split("-")[1] != f"{self._task.life:013d}":
                old.unlink(missing_ok=True)
