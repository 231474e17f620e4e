"""Outbox of a task: routed rows by destination task, and their encoding into the frames of a flush.

Rows come from the collector in *segments* (a run of rows of one stream for one task, with their root columns).
Consecutive segments of the same stream and shape become one frame, so order is kept per destination task across
streams. Encoding happens here, once for rows that go to several tasks. A frame states the weight of its tuples for its
task. It holds at most 1 MiB by that weight, or one tuple.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import IntEnum
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from heron_instance.core.values_codec import Encoded, ValuesCodec
from heron_runtime.model.settings import MiB
from heron_runtime.wire.data import Ack, Fail, Frame, Init

INITIAL_ROW_BYTES = 16384.0  # until a row was encoded: a cautious guess
FRAME_WEIGHT = MiB

U64 = npt.NDArray[np.uint64]
Row = tuple[Any, ...]


class RootColumns(IntEnum):
    """Kind of the root columns of a segment."""

    UNTRACKED = 0
    SINGLE = 1
    MANY = 2


class RoutedSegment(NamedTuple):
    """Rows of one stream for one task. ``widths``: number of roots of each row, for ``RootColumns.MANY``."""

    stream: int
    shape: RootColumns
    rows: list[Row]
    roots: U64 | None = None
    keys: U64 | None = None
    widths: npt.NDArray[np.uint32] | None = None


@dataclass
class Flush:
    """Content of one flush. The inits go with the first frame; acks and fails are sent at once."""

    inits: list[Init] = field(default_factory=list)
    acks: list[Ack] = field(default_factory=list)
    fails: list[Fail] = field(default_factory=list)
    frames: list[Frame] = field(default_factory=list)

    def weight(self) -> int:
        """Return the weight of the frames against credit and in data-out."""
        return sum(frame.weight() for frame in self.frames)

    def __bool__(self) -> bool:
        return bool(self.frames or self.acks or self.fails or self.inits)


class RefusedTuple(NamedTuple):
    """Tuple that cannot be encoded: its stream, its roots and the reason."""

    stream: int
    roots: list[int]
    reason: str


class Outbox:
    """Collects segments; ``take_frames`` turns them into frames."""

    def __init__(self, task: int, codec: ValuesCodec, clock: Callable[[], float]) -> None:
        self._task = task
        self._codec = codec
        self._clock = clock
        self._encode_seconds: dict[int, float] = {}
        self._segments: dict[int, list[RoutedSegment]] = {}
        self.rows = 0  # waiting, copies counted
        self.mean_row_bytes = INITIAL_ROW_BYTES
        self.mean_row_weight = INITIAL_ROW_BYTES  # at least the bytes
        self.weights: dict[int, int] = {}  # minimum weight of a tuple, by task; 0 if missing
        self._measured = self._weighed = False

    def weigh(self, weights: Mapping[int, int]) -> None:
        """Set the weights of tuples for these tasks."""
        self.weights.update(weights)
        # Until rows are weighed again, assume that all of them go to the heaviest task.
        self.mean_row_weight = max(self.mean_row_weight, *weights.values())
        self._weighed = False

    def add(self, tasks: Iterable[int], segment: RoutedSegment) -> None:
        """Append rows for each of ``tasks``."""
        for task in tasks:
            waiting = self._segments.get(task)
            if waiting is None:
                self._segments[task] = [segment]
            else:
                waiting.append(segment)
            self.rows += len(segment.rows)

    def take_frames(self, routing_version: int) -> tuple[list[Frame], list[RefusedTuple]]:
        """Return all waiting rows as frames, by destination task, and the tuples that cannot be encoded."""
        frames: list[Frame] = []
        refused: list[RefusedTuple] = []
        shared: dict[tuple[int, ...], list[Encoded]] = {}
        total_rows, total_bytes, total_weight = self.rows, 0, 0
        for task, segments in self._segments.items():
            weight = self.weights.get(task, 0)
            most_rows = max(1, FRAME_WEIGHT // weight) if weight else sys.maxsize
            for run in _runs(segments):
                joined = run[0] if len(run) == 1 else _join(run)
                identity = (most_rows, *(id(segment.rows) for segment in run))
                encoded = shared.get(identity)
                if encoded is None:
                    encoded = shared[identity] = self._encode(joined, most_rows)
                for piece in encoded:
                    if piece.refused:
                        refused.append(RefusedTuple(joined.stream, _roots_of(joined, piece.start), piece.refused))
                        continue
                    frame = self._frame(task, joined, piece, routing_version)
                    frame.tuple_weight = weight
                    total_bytes += frame.size_bytes()
                    total_weight += frame.weight()
                    frames.append(frame)
        self._segments = {}
        self.rows = 0
        if total_bytes:  # none, if every row was refused
            # Grow at once and shrink slowly: the mean bounds the rows that are emitted before their bytes are known.
            mean = total_bytes / total_rows
            self.mean_row_bytes = max(mean, 0.9 * self.mean_row_bytes + 0.1 * mean) if self._measured else mean
            mean = total_weight / total_rows
            self.mean_row_weight = max(mean, 0.9 * self.mean_row_weight + 0.1 * mean) if self._weighed else mean
            self._measured = self._weighed = True
        return frames, refused

    def _encode(self, segment: RoutedSegment, most_rows: int) -> list[Encoded]:
        began = self._clock()
        rows = segment.rows
        if len(rows) <= most_rows:
            encoded = self._codec.encode_cut(rows)
        else:
            encoded = [
                replace(piece, start=start + piece.start, stop=start + piece.stop)
                for start in range(0, len(rows), most_rows)
                for piece in self._codec.encode_cut(rows[start : start + most_rows])
            ]
        took = self._clock() - began
        self._encode_seconds[segment.stream] = self._encode_seconds.get(segment.stream, 0.0) + took
        return encoded

    def take_encode_seconds(self) -> dict[int, float]:
        """Return the seconds of encoding since the last call, by number of the stream."""
        taken, self._encode_seconds = self._encode_seconds, {}
        return taken

    def _frame(self, task: int, segment: RoutedSegment, piece: Encoded, routing_version: int) -> Frame:
        start, stop = piece.start, piece.stop
        frame = Frame(self._task, segment.stream, task, stop - start, routing_version, int(piece.codec), piece.data)
        if segment.roots is None or segment.keys is None:
            return frame
        if segment.widths is None:
            frame.roots = segment.roots[start:stop].astype("<u8", copy=False).tobytes()
            frame.keys = segment.keys[start:stop].astype("<u8", copy=False).tobytes()
            return frame
        offsets = _offsets(segment.widths)
        low, high = int(offsets[start]), int(offsets[stop])
        if low == high:
            return frame  # rows without roots need no columns
        frame.roots = segment.roots[low:high].tobytes()
        frame.keys = segment.keys[low:high].tobytes()
        frame.offsets = (offsets[start : stop + 1] - low).astype("<u4").tobytes()
        return frame


def _runs(segments: list[RoutedSegment]) -> list[list[RoutedSegment]]:
    runs: list[list[RoutedSegment]] = []
    for segment in segments:
        if runs and runs[-1][0].stream == segment.stream and runs[-1][0].shape is segment.shape:
            runs[-1].append(segment)
        else:
            runs.append([segment])
    return runs


def _join(run: list[RoutedSegment]) -> RoutedSegment:
    rows: list[Row] = []
    for segment in run:
        rows += segment.rows
    first = run[0]
    if first.shape is RootColumns.UNTRACKED:
        return RoutedSegment(first.stream, first.shape, rows)

    def column(get: Callable[[RoutedSegment], Any]) -> Any:
        return np.concatenate([get(segment) for segment in run])

    widths = column(lambda s: s.widths) if first.shape is RootColumns.MANY else None
    return RoutedSegment(first.stream, first.shape, rows, column(lambda s: s.roots), column(lambda s: s.keys), widths)


def _offsets(widths: npt.NDArray[np.uint32]) -> npt.NDArray[np.int64]:
    offsets = np.zeros(len(widths) + 1, dtype=np.int64)
    np.cumsum(widths, out=offsets[1:])
    return offsets


def _roots_of(segment: RoutedSegment, row: int) -> list[int]:
    if segment.roots is None:
        return []
    if segment.widths is None:
        return [int(segment.roots[row])]
    offsets = _offsets(segment.widths)
    roots: list[int] = segment.roots[offsets[row] : offsets[row + 1]].tolist()
    return roots
