"""Publisher of a view: selects the buckets that are written at a checkpoint, and writes their files.

These are the buckets that have changed. After a rescale they are all buckets, because keys have moved to other files.
If a task holds too many accumulators, it settles its oldest buckets.

A file contains packed accumulators. There is one file for each bucket and task, which is replaced when a checkpoint is
complete. A further file states the progress of each task (``heronry.pipeline.views.settled_ms``).

A bucket that its task drops, to keep memory bounded, is *settled*: its file is renamed to ``INDEX-LIFE-CHECKPOINT``,
which is never written again. Records that arrive for it later go to a new file beside it. Readers add up the files.
"""

from __future__ import annotations

import json
import logging
import os
import time
from collections.abc import Mapping, MutableMapping
from pathlib import Path
from typing import Any

from heron_runtime.files import replace_file
from heronry.api.metrics import CountMetric
from heronry.api.state import Checkpoint
from heronry.streamlet.endpoints import ViewSink
from heronry.streamlet.online.state import ReducerEntry, WindowReducerState
from heronry.streamlet.online.writers import StagedWriter, TaskOf
from heronry.streamlet.program import ReduceStep
from heronry.streamlet.records import pack

VIEW_KEYS = "user.streamlet.view.keys"
DEFAULT_VIEW_KEYS = 500_000  # accumulators of a view's buckets kept in memory, in each task
FILES = "files"  # key in the task's state: (index, of, closed_ms) of each task that has written files


class ViewPublisher:
    """Publisher of the view of one task. ``state`` is the task's own state, ``table`` the reducer's."""

    def __init__(
        self, sink: ViewSink, step: ReduceStep, task: TaskOf, config: Mapping[str, Any],
        state: MutableMapping[Any, Any], table: WindowReducerState, log: logging.Logger, unpublished: CountMetric,
    ) -> None:  # fmt: skip
        self.files = ViewBucketFiles(sink, step, task)
        self._step, self._task, self._state, self._table = step, task, state, table
        self._most = int(config.get(VIEW_KEYS, DEFAULT_VIEW_KEYS))
        self._log, self._unpublished = log, unpublished
        self._written: set[int] = set()  # for the next checkpoint
        self._before: list[tuple[int, int, int | None]] = [w for w in state.get(FILES, ()) if w[1] != task.of]
        if FILES not in state:
            self.files.begin()

    @staticmethod
    def unite(state: MutableMapping[Any, Any], states: list[dict[Any, Any]]) -> None:
        """Give every task the list of tasks that have written files."""
        writers = sorted({tuple(writer) for other in states for writer in other.get(FILES, ())}, key=repr)
        if writers:
            state[FILES] = writers

    def publish(self, start: int, entries: list[ReducerEntry]) -> None:
        """Replace a bucket at the next checkpoint."""
        self._written.add(start)
        try:
            self.files.write(start, entries)
        except (TypeError, OverflowError):
            self._log.exception(
                "the view of step %r needs keys and accumulators that are plain data (None, bool, int, float, str, "
                "bytes, list, dict): map keys to plain data, or leave the view out",
                self._step.name,
            )
            self._unpublished.incr()

    def publish_changed(self, changed: list[ReducerEntry], watermark_ms: int | None) -> None:
        """Write the buckets that the checkpoint is to show."""
        table, before = self._table, self._before
        starts = {entry.start for entry in changed if entry.start is not None}
        for start in sorted(starts.union(table.starts() if before else ())):
            self.publish(start, table.entries(start))
        for index, _, closed_ms in before:
            if index == self._task.number or (self._task.number == 0 and index >= self._task.of):
                for start in self.files.open_buckets(index, closed_ms):
                    if index != self._task.number or start not in self._written:
                        self.files.write(start, [], index)  # its keys are in other files now
        self._before = []
        self._state[FILES] = [(self._task.number, self._task.of, table.closed_ms)]
        self._settle()
        self._written.clear()
        self.files.reached(watermark_ms)

    def _settle(self) -> None:
        """Settle the oldest buckets, to keep memory bounded."""
        if self._step.windowing is not None:
            return
        starts = sorted(self._table.starts())
        sizes = {start: len(self._table.entries(start)) for start in starts} if len(starts) > 1 else {}
        size = sum(sizes.values())
        for start in starts[:-1]:
            if size <= self._most:
                break
            if start in self._written:
                continue
            self.files.settle(start)
            self._table.drop(start)
            size -= sizes[start]


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

        Earlier records are in the buckets. None means that the progress is unknown (yet).
        """
        if watermark_ms != self._told:
            text = json.dumps({"watermark_ms": watermark_ms, "of": self._task.of})
            self._staging.file(f"{PROGRESS}/{self._task.number}.json").write_text(text)
            self._told = watermark_ms

    def open_buckets(self, index: int, closed_ms: int | None) -> list[int]:
        """Return the buckets that a task of this index has written and may write again."""
        buckets = [int(path.parent.name) for path in self.root.glob(f"{ONLINE}/*/{index}{SUFFIX}")]
        return [start for start in buckets if closed_ms is None or start + self._length_ms > closed_ms]

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
