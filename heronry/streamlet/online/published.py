"""Publisher of a view: selects the buckets that are written at a checkpoint.

These are the buckets that have changed. After a rescale they are all buckets, because keys have moved to other files.
If a task holds too many accumulators, it settles its oldest buckets.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, MutableMapping
from typing import Any

from heronry.api.metrics import CountMetric
from heronry.streamlet.endpoints import ViewSink
from heronry.streamlet.online.state import ReducerEntry, WindowReducerState
from heronry.streamlet.online.view_files import ViewBucketFiles
from heronry.streamlet.online.writers import TaskOf
from heronry.streamlet.program import ReduceStep

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
        found = sorted({tuple(writer) for other in states for writer in other.get(FILES, ())}, key=repr)
        if found:
            state[FILES] = found

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
