"""Messages of the data stream: packets of frames and acks.

A *packet* is one message: everything that was queued for a link when its previous write ended. A *frame* is one batch
of tuples from one task to one task: header, root columns and one opaque ``values``. Stream managers route frames by
their header and never decode ``values``.

Columns are little-endian bytes (numpy reads them without a copy): ``roots`` and ``keys`` uint64, ``offsets`` uint32.
``offsets`` is empty when every tuple of the frame has exactly one root, or when none has any (then ``roots`` is empty).
Otherwise it has count + 1 entries, and the roots of tuple i are ``roots[offsets[i]:offsets[i+1]]``.
"""

from __future__ import annotations

import msgspec

from heron_runtime.model.dataflow import FailKind

FRAME_OVERHEAD_BYTES = 64
BARRIER = 255  # used as codec: the frame is a checkpoint barrier and does not contain tuples


class Frame(msgspec.Struct, gc=False):
    """Batch of tuples of one stream from one task to one task."""

    source_task: int
    stream: int
    destination_task: int
    count: int
    routing_version: int
    codec: int
    values: bytes
    offsets: bytes = b""
    roots: bytes = b""
    keys: bytes = b""
    tuple_weight: int = 0  # minimal weight of each tuple, from the time that its receiver takes

    def size_bytes(self) -> int:
        """Return the memory that the frame takes, in bytes."""
        return len(self.values) + len(self.roots) + len(self.keys) + len(self.offsets) + FRAME_OVERHEAD_BYTES

    def weight(self) -> int:
        """Return the weight in queues and against credit, at least its size (`heron_runtime/model/dataflow.py`)."""
        size = len(self.values) + len(self.roots) + len(self.keys) + len(self.offsets) + FRAME_OVERHEAD_BYTES
        if self.tuple_weight:
            return max(size, self.count * self.tuple_weight)
        return size


class Init(msgspec.Struct, gc=False):
    """New roots of one spout task: ``first_root``, ``first_root`` + 1, … and for each the XOR of its edge keys."""

    task: int
    first_root: int
    xors: bytes


class Ack(msgspec.Struct, gc=False):
    """Processed tuples: for each root, the tuple's key XOR all edge keys drawn on it."""

    task: int
    roots: bytes
    xors: bytes


class Reason(msgspec.Struct, frozen=True):
    """Reason of a failure. ``message`` and ``traceback`` are set only for the first of each kind per flush."""

    kind: FailKind
    component: str = ""
    task: int = 0
    message: str = ""
    traceback: str = ""


class Fail(msgspec.Struct):
    """Roots (of the spout task ``task``) whose tuple trees cannot complete."""

    task: int
    roots: bytes
    reason: Reason


class Verdict(msgspec.Struct):
    """Outcome that the tracker reports to a spout task: these roots are complete (no reason) or have failed."""

    task: int
    roots: bytes
    reason: Reason | None = None


class Packet(msgspec.Struct):
    """One message of a data stream. It is processed in the order inits, acks, fails, verdicts, frames."""

    sequence: int = 0
    inits: list[Init] = msgspec.field(default_factory=list)
    acks: list[Ack] = msgspec.field(default_factory=list)
    fails: list[Fail] = msgspec.field(default_factory=list)
    verdicts: list[Verdict] = msgspec.field(default_factory=list)
    frames: list[Frame] = msgspec.field(default_factory=list)
