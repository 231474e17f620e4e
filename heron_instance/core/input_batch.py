"""Input of a bolt: frames joined into batches, with ack columns, and the buffer of failed roots.

The byte of a tuple in ``state`` is the single source of truth about it. ``ack`` sets it; ``take_acked`` finds in one
numpy pass the bytes set since the last time (user code may set more meanwhile), and ``settled`` makes columns of them.
``edges`` holds, for each tuple, the XOR of the keys of all edges drawn on it; it exists only once there is an edge. A
batch that is not settled when its turn ends lives as long as the user holds tuples of it (delayed acks). Dropped tuples
are forgotten with it, and their roots time out.

``FailureBuffer`` groups failed roots on their way to the tracker so that each text is sent once: a flush carries one
``Fail`` for each spout task and text. At most ``MAX_TEXTS`` different texts (message and traceback) of each kind go
with one flush; further failures go without text.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from heron_runtime.model.dataflow import MAX_REASON_TEXT, FailKind
from heron_runtime.model.ids import root_task
from heron_runtime.wire.data import Ack, Fail, Frame, Reason
from heronry.api.tuples import Origin

U64 = npt.NDArray[np.uint64]
OPEN, ACKED, FAILED, SENT = 0, 1, 2, 3
EVERY = ...  # every tuple of a batch
# Stream and tracking, which frames must share to become one batch.
Kind = tuple[int, bool]
MAX_TEXTS = 8


class AckedTuples(NamedTuple):
    """Number of acked tuples and their columns (None if tuples are not tracked)."""

    tuples: int
    roots: U64 | None
    xors: U64 | None


def batch_kind(frame: Frame) -> Kind | None:
    """Return the kind of a frame. Frames of equal kind may be joined; None: the frame stays alone."""
    return None if frame.offsets else (frame.stream, bool(frame.roots))


class InputBatch(Origin):
    """One batch: the current batch of the executor, or an older one with open tuples."""

    __slots__ = ("__weakref__", "arrived_ms", "closed", "count", "edges", "keys", "offsets", "roots", "state")

    def __init__(
        self,
        component: str,
        stream: str,
        fields: tuple[str, ...],
        frames: list[Frame],
        first_id: int,
        arrived_ms: float,
    ) -> None:
        super().__init__(component, stream, fields, frames[0].source_task, first_id)
        first = frames[0]
        self.count = first.count
        for frame in frames[1:]:
            self.starts.append(self.count)
            self.task_of_start.append(frame.source_task)
            self.count += frame.count
        self.arrived_ms = arrived_ms
        self.state = bytearray(self.count)
        self.closed = False
        self.edges: U64 | None = None
        self.offsets: npt.NDArray[np.uint32] | None = None
        self.roots: U64 | None = None
        self.keys: U64 | None = None
        if first.roots:
            joined = len(frames) > 1
            self.roots = np.frombuffer(b"".join([f.roots for f in frames]) if joined else first.roots, dtype="<u8")
            self.keys = np.frombuffer(b"".join([f.keys for f in frames]) if joined else first.keys, dtype="<u8")
            if first.offsets:
                self.offsets = np.frombuffer(first.offsets, dtype="<u4")

    @property
    def single(self) -> bool:
        """True if each tuple has exactly one root, or none has any."""
        return self.offsets is None

    def roots_of(self, index: int) -> list[int]:
        """Return the roots of one tuple."""
        if self.roots is None:
            return []
        if self.offsets is None:
            return [int(self.roots[index])]
        roots: list[int] = self.roots[self.offsets[index] : self.offsets[index + 1]].tolist()
        return roots

    def draw_edge(self, index: int, key: int) -> None:
        """Draw one edge from this tuple to a new copy."""
        if self.roots is not None:
            self._edges()[index] ^= np.uint64(key)

    def draw_edges(self, indices: Any, keys: U64) -> None:
        """Draw edges from many tuples of this batch. An index may occur several times."""
        np.bitwise_xor.at(self._edges(), indices, keys)

    def _edges(self) -> U64:
        if self.edges is None:
            self.edges = np.zeros(self.count, dtype=np.uint64)
        return self.edges

    def take_acked(self) -> Any:
        """Return the indices acked since the last call: an array, ``EVERY`` for the whole batch, or None."""
        state = self.state
        acked = state.count(ACKED)
        if acked == 0:
            return None
        if acked == self.count:
            self.state = bytearray(b"\x03") * self.count
            return EVERY
        codes = np.frombuffer(state, dtype=np.uint8)
        indices = np.flatnonzero(codes == ACKED)
        codes[indices] = SENT
        return indices

    def settled(self, indices: Any) -> AckedTuples:
        """Return the columns of the result of ``take_acked``, with the edges drawn so far."""
        if indices is EVERY:
            count, indices = self.count, None
        else:
            count = len(indices)
        roots, keys, edges = self.roots, self.keys, self.edges
        if roots is None or keys is None:
            return AckedTuples(count, None, None)
        if self.offsets is None:
            if indices is None:
                return AckedTuples(count, roots, keys if edges is None else keys ^ edges)
            xors = keys[indices] if edges is None else keys[indices] ^ edges[indices]
            return AckedTuples(count, roots[indices], xors)
        widths = np.diff(self.offsets)
        xors = keys if edges is None else keys ^ np.repeat(edges, widths)
        if indices is not None:
            selected = np.zeros(self.count, dtype=bool)
            selected[indices] = True
            mask = np.repeat(selected, widths)
            return AckedTuples(count, roots[mask], xors[mask])
        return AckedTuples(count, roots, xors)

    def settle_rest(self, start: int, stop: int, code: int) -> Sequence[int]:
        """Set every open tuple in the range to ``code``. Return their indices."""
        state = self.state
        if start == 0 and stop == self.count and state.count(OPEN) == stop:
            self.state = bytearray([code]) * stop
            return range(stop)
        indices = [i for i in range(start, stop) if state[i] == OPEN]
        for i in indices:
            state[i] = code
        return indices


def acks_by_task(parts: list[AckedTuples]) -> list[Ack]:
    """Make one ack message for each spout task."""
    tracked = [part for part in parts if part.roots is not None and len(part.roots)]
    if not tracked:
        return []
    if len(tracked) == 1:
        roots, xors = tracked[0].roots, tracked[0].xors
    else:
        roots = np.concatenate([part.roots for part in tracked])
        xors = np.concatenate([part.xors for part in tracked])
    assert roots is not None
    assert xors is not None
    return [Ack(task, r.tobytes(), x.tobytes()) for task, r, x in split_by_task(roots, xors)]


def split_by_task(roots: U64, xors: U64) -> list[tuple[int, U64, U64]]:
    """Divide root columns by spout task."""
    tasks = (roots >> np.uint64(48)).astype(np.uint16)
    first = tasks[0]
    if (tasks == first).all():
        return [(root_task(int(roots[0])), roots, xors)]
    parts = []
    for task in np.unique(tasks).tolist():
        mask = tasks == task
        parts.append((task, roots[mask], xors[mask]))
    return parts


class FailureBuffer:
    """Collects failed roots until the next flush."""

    def __init__(self, component: str, task: int) -> None:
        self._component = component
        self._task = task
        self._roots: dict[tuple[FailKind, str, str], list[int]] = {}
        # Failed tuples by (source component, stream, arrival time of the batch, kind), for the metrics
        self.newly_failed: dict[tuple[str, str, float, FailKind], int] = {}

    def add(self, batch: Any, indices: list[int], kind: FailKind, message: str = "", traceback: str = "") -> None:
        """Add failed tuples of a batch."""
        self.count(batch.component, batch.stream, batch.arrived_ms, kind, len(indices))
        if batch.roots is not None:
            self.add_roots([root for i in indices for root in batch.roots_of(i)], kind, message, traceback)

    def count(self, component: str, stream: str, arrived_ms: float, kind: FailKind, n: int) -> None:
        """Count ``n`` failed tuples of this source, for the metrics only."""
        key = (component, stream, arrived_ms, kind)
        self.newly_failed[key] = self.newly_failed.get(key, 0) + n

    def add_roots(self, roots: list[int], kind: FailKind, message: str = "", traceback: str = "") -> None:
        """Add failed roots."""
        text = (kind, message[:MAX_REASON_TEXT], traceback[-MAX_REASON_TEXT:])
        if text not in self._roots and sum(known[0] is kind for known in self._roots) >= MAX_TEXTS:
            text = (kind, "", "")
        self._roots.setdefault(text, []).extend(roots)

    def waiting(self) -> bool:
        """Return True if a root waits."""
        return bool(self._roots)

    def take(self) -> list[Fail]:
        """Return all failures since the last call as wire messages."""
        taken, self._roots = self._roots, {}
        fails = []
        for (kind, message, traceback), roots in taken.items():
            if not roots:
                continue
            column = np.unique(np.array(roots, dtype=np.uint64))
            reason = Reason(kind, self._component, self._task, message, traceback)
            fails += [Fail(task, mine.tobytes(), reason) for task, mine, _ in split_by_task(column, column)]
        return fails
