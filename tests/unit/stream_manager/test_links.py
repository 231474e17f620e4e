"""Outgoing links: bounded packets, whole columns, fair turns between destinations, and counted losses."""

from __future__ import annotations

import random
from collections import defaultdict, deque
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from heron_instance.core.flow_control import UploadQueue
from heron_instance.core.outbox import Flush
from heron_runtime.model.dataflow import FailKind
from heron_runtime.wire.control import Credit, PeerCredit
from heron_runtime.wire.data import Packet, Reason
from heron_runtime.wire.data_codec import encode_packet
from stream_manager.core.credit import CreditGrant
from stream_manager.core.forwarding import roots_by_spout, tracked_count
from stream_manager.core.links import MAX_REASONS, PACKET_BYTES, DestinationQueue, Link, SettlementQueue
from tests.support.harness.stream_managers import StreamManagerHarness, column, failed, frame, make_plan

EXPIRED = Reason(FailKind.TIMEOUT)


def opened(*tasks: int, limit: int = 1 << 30) -> Link:
    link = Link(container=2)
    link.open()
    for task in tasks:
        link.grant(task, limit)
    return link


def packets(link: Link) -> list[Packet]:
    found = []
    while (next_packet := link.next_packet()) is not None:
        found.append(next_packet[0])
        link.check()
    return found


@given(
    st.lists(
        st.tuples(st.sampled_from(["ack", "fail", "verdict"]), st.integers(1, 3), st.integers(1, 40_000)), max_size=12
    )
)
def test_settlements_are_cut_into_packets_whole_and_in_order(
    items: list[tuple[str, int, int]],
) -> None:
    link = opened()
    want: dict[tuple[str, int], list[int]] = defaultdict(list)
    got: dict[tuple[str, int], list[int]] = defaultdict(list)
    serial = 0
    for kind, task, count in items:
        roots = list(range(serial, serial + count))
        serial += count
        want[kind, task] += roots
        if kind == "ack":
            link.settlements.ack(task, column(roots), column([~r & (2**64 - 1) for r in roots]))
        elif kind == "fail":
            link.settlements.fail(task, column(roots), failed())
        else:
            link.settlements.verdict(task, column(roots), EXPIRED)
    link.check()
    for number, packet in enumerate(packets(link), 1):
        assert packet.sequence == number
        assert len(encode_packet(packet)) <= PACKET_BYTES
        for ack in packet.acks:
            roots, xors = memoryview(ack.roots).cast("Q").tolist(), memoryview(ack.xors).cast("Q").tolist()
            assert xors == [~r & (2**64 - 1) for r in roots]
            got["ack", ack.task] += roots
        for fail in packet.fails:
            got["fail", fail.task] += memoryview(fail.roots).cast("Q").tolist()
        for verdict in packet.verdicts:
            got["verdict", verdict.task] += memoryview(verdict.roots).cast("Q").tolist()
    assert got == want
    assert link.settlements.bytes == 0


@given(st.lists(st.tuples(st.integers(1, 4), st.sampled_from([10, 1000, 300_000, 1_500_000])), max_size=25))
def test_packet_holds_a_mebibyte_or_one_frame_in_order(items: list[tuple[int, int]]) -> None:
    link = opened(1, 2, 3, 4)
    values = bytes(1_500_000)
    for number, (task, size) in enumerate(items):
        made = frame(9, task, values[:size], count=number + 1)
        link.push(made, made.size_bytes(), None)
    link.settlements.ack(7, column([1]), column([2]))
    sent: dict[int, list[int]] = defaultdict(list)
    for packet in packets(link):
        assert len(encode_packet(packet)) <= PACKET_BYTES or (len(packet.frames) == 1 and not packet.acks)
        for made in packet.frames:
            sent[made.destination_task].append(made.count)
    assert all(numbers == sorted(numbers) for numbers in sent.values())
    assert sum(map(len, sent.values())) == len(items)
    assert link.weight == 0


def test_destinations_take_turns_and_missing_credit_blocks_only_its_own() -> None:
    link = opened(1, 2)
    for task in (1, 1, 1, 2, 3, 2):
        made = frame(9, task)
        link.push(made, made.size_bytes(), None)
    assert [f.destination_task for f in packets(link)[0].frames] == [1, 2, 1, 2, 1]
    assert not link.has_work()
    link.grant(3, 1)
    assert [f.destination_task for f in packets(link)[0].frames] == [3]


def test_settlements_that_fit_share_one_packet() -> None:
    queue, packet = SettlementQueue(), Packet()
    for task in (1, 2, 3):
        queue.ack(task, column([task]), column([task]))
        queue.fail(task, column([task]), failed())
        queue.verdict(task, column([task]), EXPIRED)
    left = queue.fill(packet, PACKET_BYTES)
    assert not queue
    assert 0 < left < PACKET_BYTES, "and frames may go with it"
    assert [len(packet.acks), len(packet.fails), len(packet.verdicts)] == [3, 3, 3]


@given(st.integers(0, 3), st.integers(0, 3), st.integers(0, 3))
def test_sendable_weight_is_queued_and_within_credit(queued: int, limit: int, sent: int) -> None:
    destination = DestinationQueue(1)
    destination.weight, destination.limit, destination.sent = queued, limit, sent
    assert destination.sendable_weight() == min(queued, max(0, limit - sent))


@given(st.lists(st.tuples(st.integers(1, 3), st.integers(0, 5)), max_size=12))
def test_roots_go_to_the_spouts_that_opened_them(pairs: list[tuple[int, int]]) -> None:
    roots = {(task << 48) | number for task, number in pairs}
    found = roots_by_spout(frame(9, 1, roots=column([(task << 48) | number for task, number in pairs])))
    assert [task for task, _ in found] == sorted({root >> 48 for root in roots}), "each spout once"
    assert [root for _, some in found for root in memoryview(some).cast("Q")] == sorted(roots)
    assert all(root >> 48 == task for task, some in found for root in memoryview(some).cast("Q"))


@given(st.lists(st.integers(0, 3), min_size=1, max_size=8))
def test_tuple_with_roots_is_tracked(roots_of_each: list[int]) -> None:
    offsets = np.cumsum([0, *roots_of_each]).astype("<u4").tobytes()
    roots = column(list(range(sum(roots_of_each))))
    count = len(roots_of_each)
    assert tracked_count(frame(9, 1, count=count, roots=roots, offsets=offsets)) == sum(map(bool, roots_of_each))
    assert tracked_count(frame(9, 1, count=count, roots=column([5] * count))) == count, "one root each"
    assert tracked_count(frame(9, 1, count=count)) == 0


@pytest.mark.parametrize("kind", ["fails", "verdicts"])
def test_reason_texts_are_bounded(kind: str) -> None:
    queue = SettlementQueue()
    put = queue.fail if kind == "fails" else queue.verdict
    for number in range(2 * MAX_REASONS):
        put(1, column([number]), Reason(FailKind.EXCEPTION, "split", 2, f"text {number}", "trace" * 1000))
    queue.check()
    count, kinds, found = 0, set(), 0
    while queue:
        packet = Packet()
        queue.fill(packet, PACKET_BYTES)
        assert len(encode_packet(packet)) <= PACKET_BYTES
        count += 1
        told: list[Any] = [*packet.fails, *packet.verdicts]
        assert all((one.reason.component, one.reason.task) == ("split", 2) for one in told)
        kinds |= {one.reason.message for one in told}
        found += sum(len(one.roots) for one in told) // 8
    assert found == 2 * MAX_REASONS
    assert kinds == {"", *(f"text {number}" for number in range(MAX_REASONS))}
    assert count > 1


def test_packet_is_bounded_for_every_script() -> None:
    """A character may take four bytes, and a column fills what the text leaves."""
    for text in ("x", "é", "水", "😀"):
        queue, reason = SettlementQueue(), Reason(FailKind.EXCEPTION, "split", 2, text * 1_000, text * 60_000)
        queue.fail(1, column(list(range(1, 300_000))), reason)
        found = 0
        while queue:
            packet = Packet()
            queue.fill(packet, PACKET_BYTES)
            assert len(encode_packet(packet)) <= PACKET_BYTES
            found += sum(len(fail.roots) for fail in packet.fails) // 8
        assert found == 299_999


def test_drop_verdicts_keeps_acks_and_fails() -> None:
    queue, packet = SettlementQueue(), Packet()
    queue.ack(1, column([1, 2]), column([3, 4]))
    queue.fail(1, column([5]), failed())
    queue.verdict(1, column([6, 7, 8]), None)
    queue.verdict(1, column([9]), EXPIRED)
    queue.drop_verdicts()
    queue.check()
    assert queue.bytes == 2 * 16 + 8
    queue.fill(packet, PACKET_BYTES)
    assert [len(packet.acks), len(packet.fails), len(packet.verdicts)] == [1, 1, 0]


WINDOW = 100
SIZE = frame(1, 2, b"x").weight()


class Sender:
    """One end of a link: a stream manager's link or an instance's gateway."""

    def __init__(self, of_gateway: bool) -> None:
        self.link = None if of_gateway else Link(container=2)
        self.gateway = UploadQueue()

    def open(self) -> None:
        if self.link is None:
            self.gateway.begin_stream()
        else:
            self.link.open()

    def credit(self, limit: int, taken: int) -> None:
        if self.link is None:
            self.gateway.grant(limit, taken)
        else:
            self.link.grant(2, limit, taken)

    def send(self, serial: int) -> None:
        tuples = frame(1, 2, b"x", count=1)
        if self.link is None:
            self.gateway.put(Flush(frames=[tuples]))
        else:
            self.link.push(tuples, tuples.weight(), None)

    def packet(self) -> int:
        """Return the number of tuples in the next packet."""
        if self.link is None:
            found: Any = self.gateway.take()
        else:
            found = self.link.next_packet()
        return 0 if found is None else sum(frame.count for frame in found[0].frames)

    def end(self) -> int:
        """Return the number of tuples counted as lost with this connection."""
        if self.link is None:
            return sum(self.gateway.end_stream().values())
        before = sum(self.link.lost.values())
        self.link.close()
        return sum(self.link.lost.values()) - before


def count_losses(of_gateway: bool, seed: int) -> None:
    """Run a random schedule of packets, credit and broken links, and compare the losses with the count."""
    rng, sender = random.Random(seed), Sender(of_gateway)
    grant = CreditGrant(WINDOW * SIZE, task=2)
    wire: deque[int] = deque()  # tuples in transit
    queue = 0  # arrived but not taken
    sender.open()
    sender.credit(grant.limit, grant.taken)
    here = taken_here = known = 0  # sent on this connection; taken of these, and confirmed to the sender
    for step in range(400):
        sender.send(step)
        match rng.choice(("send", "arrive", "take", "take", "tell", "break")):
            case "send":
                count = sender.packet()
                wire.append(count)
                here += count
            case "arrive" if wire:
                for _ in range(wire.popleft()):
                    assert grant.receive(SIZE)
                    queue += 1
            case "take":
                for _ in range(min(queue, rng.randrange(8))):
                    queue -= 1
                    grant.use(SIZE)
                taken_here = max(0, grant.used) // SIZE
                if grant.renewal() is not None:
                    sender.credit(grant.limit, grant.taken)
                    known = taken_here
            case "tell":
                sender.credit(grant.limit, grant.taken)
                known = taken_here
            case "break" if rng.random() < 0.2:
                lost, counted = sum(wire), sender.end()
                assert lost <= counted, "no loss is missed"
                assert counted == here - known, "nor is anything counted that was known to be taken"
                wire.clear()
                grant.restart(open_now=True)
                sender.open()
                sender.credit(grant.limit, grant.taken)
                here = taken_here = known = 0


@pytest.mark.parametrize("of_gateway", [False, True])
def test_every_lost_tuple_is_counted(of_gateway: bool) -> None:
    for seed in range(20):
        count_losses(of_gateway, seed)


def test_taken_bytes_are_reported_each_second_to_instances_and_peers() -> None:
    world = StreamManagerHarness(make_plan())
    world.start()
    world.send(1, [frame(1, 6, b"there"), frame(1, 2, b"here")])
    world.settle()
    upload = 2 * SIZE + 7  # of values
    world.instances[1].heard.clear()
    world.tick(1000)
    world.settle()
    assert [m.taken_bytes for m in world.instances[1].heard if isinstance(m, Credit)] == [upload]
    peer = world.cores[1].connections.peers[2]
    assert not peer.link.destinations[6].unconfirmed, "container 2 has handed it on"
    world.instances[1].heard.clear()
    world.tick(1000)
    assert not [m for m in world.instances[1].heard if isinstance(m, Credit | PeerCredit)], "only what is new"
