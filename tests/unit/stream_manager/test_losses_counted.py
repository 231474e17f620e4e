"""Loss counts of broken links: never below the real loss, and without tuples known to be taken."""

from __future__ import annotations

import random
from collections import deque
from typing import Any

import pytest

from heron_instance.core.flow_control import UploadQueue
from heron_instance.core.outbox import Flush
from heron_runtime.wire.control import Credit, PeerCredit
from stream_manager.core.credit import CreditGrant
from stream_manager.core.links import Link
from tests.support.harness.stream_managers import StreamManagerHarness, frame, make_plan

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
