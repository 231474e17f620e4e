"""Upload queue of the gateway: items leave once, in order and numbered; frames need credit."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from heron_instance.core.flow_control import PACKET_BYTES, UploadQueue
from heron_instance.core.outbox import Flush
from heron_runtime.model.dataflow import FailKind
from heron_runtime.wire.data import Ack, Fail, Frame, Init, Reason

ITEMS = st.lists(st.tuples(st.sampled_from(("inits", "acks", "fails", "frames")), st.integers(1, 30)), max_size=6)
STEPS = st.lists(st.one_of(ITEMS, st.integers(0, 400), st.sampled_from(("take", "hello"))), max_size=25)


def made(what: str, number: int, size: int) -> Any:
    column = np.arange(number, number + size, dtype=np.uint64).tobytes()
    match what:
        case "inits":
            return Init(1, number, column)
        case "acks":
            return Ack(1, column, column)
        case "fails":
            return Fail(1, column, Reason(FailKind.FAILED, "b", 2, "no"))
        case _:
            return Frame(1, 0, 2, size, 1, 0, bytes(size))


@given(STEPS)
def test_items_leave_once_and_in_order(steps: list[Any]) -> None:
    outgoing, number = UploadQueue(), 0
    want: dict[str, list[Any]] = {"inits": [], "acks": [], "fails": [], "frames": []}
    got: dict[str, list[Any]] = {"inits": [], "acks": [], "fails": [], "frames": []}
    limit = sent = sequence = 0
    outgoing.begin_stream()
    for step in [*steps, 10**6, "take"]:
        if step == "hello":
            outgoing.begin_stream()
            limit = sent = sequence = 0
        elif step == "take":
            while (taken := outgoing.take()) is not None:
                packet, weight = taken
                sequence += 1
                assert packet.sequence == sequence
                assert weight == sum(frame.weight() for frame in packet.frames)
                assert not packet.frames or sent + weight - packet.frames[-1].weight() < limit
                sent += weight
                for kind, items in got.items():
                    items += getattr(packet, kind)
                assert want["inits"] == got["inits"] or not (packet.acks or packet.fails or packet.frames)
            waiting = {kind for kind in want if len(got[kind]) < len(want[kind])}
            assert waiting <= {"frames"}, "only frames need credit"
            assert not waiting or sent >= limit
            assert outgoing.empty() == (not waiting)
        elif isinstance(step, int):
            outgoing.grant(step)
            limit = max(limit, step)
        else:
            flush = Flush()
            for what, size in step:
                number += 100
                item = made(what, number, size)
                getattr(flush, what).append(item)
                want[what].append(item)
            outgoing.put(flush)
        waits = {kind for kind in want if len(got[kind]) < len(want[kind])}
        assert outgoing.sendable() == bool(waits - {"frames"} or (waits and sent < limit))
        outgoing.check()
    assert got == want


def test_acks_with_both_columns_fit_the_packet_limit() -> None:
    outgoing, column = UploadQueue(), bytes(PACKET_BYTES // 4)
    outgoing.begin_stream()
    outgoing.put(Flush(acks=[Ack(task, column, column) for task in (1, 2, 3)]))
    sent = []
    while (taken := outgoing.take()) is not None:
        sent.append([ack.task for ack in taken[0].acks])
    assert sent == [[1, 2], [3]]
