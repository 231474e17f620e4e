"""Three stream managers under random traffic and faults: safe after every step, and drained after recovery."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import numpy as np
import pytest

from heron_runtime.model.ids import SEQUENCE_BITS, root_task
from heron_runtime.wire.data import Ack, Fail, Frame
from tests.support.harness.stream_managers import PLACES, StreamManagerHarness, column, failed, frame, make_plan


def root_incarnation(root: int) -> int:
    """Return the incarnation bits of a root."""
    return (root >> SEQUENCE_BITS) & 0xFFFF


SETTINGS = {"heron.streammgr.upload.window.bytes": 65_536, "heron.streammgr.peer.window.bytes": 3000}
CONFIG: dict[str, Any] = {
    "topology__backpressure__high__watermark__bytes": 6000,
    "topology__backpressure__low__watermark__bytes": 2000,
    "topology__message__timeout__secs": 5,
}
DOWNSTREAM = {"word": "split", "split": "count", "other": "sink"}
TASKS = {task: name for tasks in PLACES.values() for task, name in tasks.items()}
SPOUTS = [task for task, name in TASKS.items() if name in ("word", "other")]
BOLTS = [task for task in TASKS if task not in SPOUTS]
CUT_EVERY = 20
ACTIONS, WEIGHTS = ("emit", "take", "pump", "wire", "tick", "fault"), (8, 20, 20, 40, 3, 2)


class Traffic:
    """Random driver: spouts emit trees, bolts anchor, ack and fail, links break, instances die."""

    def __init__(self, seed: int) -> None:
        self.world = StreamManagerHarness(make_plan(**CONFIG), SETTINGS, seed)
        self.rng = self.world.rng
        self.edges: dict[int, set[int]] = defaultdict(set)  # root to its unprocessed edges
        self.failed: set[int] = set()
        self.serial = 0
        self.last: dict[tuple[int, int], int] = {}  # (source, destination) to the last serial taken
        self.emitted = self.taken = 0
        self.dead_inboxes = 0
        self.opened: list[int] = []
        self.verdicts: dict[int, list[tuple[int, object]]] = defaultdict(list)
        self.world.start()

    def step(self) -> None:
        getattr(self, self.rng.choices(ACTIONS, WEIGHTS)[0])()

    def emit(self) -> None:
        task = self.rng.choice(SPOUTS)
        instance = self.world.instances[task]
        if instance.connection is None or (instance.paused and instance.paused.paused) or instance.outbox:
            return
        targets = [t for t, name in TASKS.items() if name == DOWNSTREAM[TASKS[task]]]
        chosen = self.rng.sample(targets, self.rng.randint(1, len(targets)))
        edges = [self.rng.getrandbits(64) for _ in chosen]
        root = self.world.open_root(task, edges)
        self.opened.append(root)
        self.edges[root] = set(edges)
        self.send(task, [(target, root, edge) for target, edge in zip(chosen, edges, strict=True)])

    def send(self, task: int, copies: list[tuple[int, int, int]], **settled: list[Any]) -> None:
        frames = []
        for target, root, edge in copies:
            self.serial += 1
            values = b"%8d" % self.serial + bytes(self.rng.choice((10, 200, 1500)))
            frames.append(frame(task, target, values, roots=column([root]), keys=column([edge])))
        self.emitted += len(frames)
        self.world.send(task, frames, **settled)

    def take(self) -> None:
        task = self.rng.choice(BOLTS)
        if self.world.instances[task].connection is None:
            return
        for _ in range(self.rng.randrange(4)):
            taken = self.world.take(task)
            if taken is not None:
                self.process(task, taken)

    def process(self, task: int, taken: Frame) -> None:
        self.taken += 1
        serial = int(taken.values[:8])
        pair = (taken.source_task, task)
        assert serial > self.last.get(pair, 0), "order is kept per source and destination"
        self.last[pair] = serial
        root, key = (int(np.frombuffer(c, "<u8")[0]) for c in (taken.roots, taken.keys))
        spout = root_task(root)
        if self.rng.random() < 0.05:
            self.failed.add(root)
            self.send(task, [], fails=[Fail(spout, column([root]), failed())])
            return
        copies = []
        target_name = DOWNSTREAM.get(TASKS[task])
        if target_name:
            targets = [t for t, name in TASKS.items() if name == target_name]
            copies = [(self.rng.choice(targets), root, self.rng.getrandbits(64)) for _ in range(self.rng.randint(0, 2))]
        # The copies leave before the ack, as in one flush, so the tree is never empty in between.
        self.edges[root] |= {edge for _, _, edge in copies}
        self.edges[root].discard(key)
        total = key
        for _, _, edge in copies:
            total ^= edge
        self.send(task, copies, acks=[Ack(spout, column([root]), column([total]))])

    def pump(self) -> None:
        self.world.pump(self.rng.choice(list(self.world.cores)))
        self.listen()

    def wire(self) -> None:
        wires = list(self.world.wires)
        if wires:
            where, what = self.rng.choice(wires), self.rng.choice(("data", "control"))
            for _ in range(self.rng.randrange(1, 4)):
                self.world.deliver(*where, what)

    def tick(self) -> None:
        self.world.tick(self.rng.choice((10, 20, 100, 400)))
        self.flush()

    def flush(self) -> None:
        for task in TASKS:
            if self.world.instances[task].outbox:
                self.world.send(task)

    def fault(self) -> None:
        if self.rng.randrange(CUT_EVERY):
            return
        if self.rng.random() < 0.5:
            a, b = sorted(self.rng.sample(list(self.world.cores), 2))
            (self.world.break_link if (a, b) in self.world.wires else self.world.link)(a, b)
            return
        task = self.rng.choice(list(TASKS))
        self.restart(task)

    def restart(self, task: int) -> None:
        instance = self.world.instances[task]
        if instance.connection is not None:
            self.listen()
            self.world.disconnect(task)
        elif self.rng.random() < 0.5:
            self.emitted -= len(instance.outbox)  # never left the dead process
            self.world.connect(task, incarnation=instance.incarnation + 1)
        else:
            self.world.connect(task)

    def listen(self) -> None:
        """Deliver verdicts to spouts: each root once, and acked only if its whole tree was processed."""
        for task in SPOUTS:
            instance = self.world.instances[task]
            for root, kind in instance.verdicts:
                assert root_incarnation(root) == instance.incarnation, "no verdict for a process that is gone"
                assert (root, "any") not in self.verdicts[task], "settled once"
                self.verdicts[task].append((root, "any"))
                if kind is None:
                    assert not self.edges[root], "an acked tree is complete"
                    assert root not in self.failed
            instance.verdicts.clear()

    def heal(self) -> None:
        """Run without faults until everything has drained and settled."""
        for a in self.world.cores:
            for b in self.world.cores:
                if a < b and (a, b) not in self.world.wires:
                    self.world.link(a, b)
        for task, instance in self.world.instances.items():
            if instance.connection is None:
                self.world.connect(task)
        for _ in range(200):
            self.world.settle()
            self.listen()
            self.flush()
            for task in BOLTS:
                while (taken := self.world.take(task)) is not None:
                    self.process(task, taken)
            self.world.tick(100)
        self.listen()


@pytest.mark.parametrize("seed", range(12))
def test_random_traffic_is_safe_and_drains(seed: int) -> None:
    traffic = Traffic(seed)
    for _ in range(2500):
        traffic.step()
    traffic.heal()
    world = traffic.world
    for core in world.cores.values():
        links = [i.link for i in core.connections.instances.values()] + [
            p.link for p in core.connections.peers.values()
        ]
        assert sum(link.weight + link.settlements.bytes for link in links) == 0, "drained"
        assert core.causes.union() == ()
        assert core.trackers.live == 0, "settled or expired"
        assert core.forwarder.blocked == set()
        assert core.violations == 0
    assert not any(instance.paused and instance.paused.paused for instance in world.instances.values())
    assert all(not instance.outbox for instance in world.instances.values()), "credit has come back"
    # Every root of a live process received its verdict.
    for task in SPOUTS:
        alive = world.instances[task].incarnation
        mine = {r for r in traffic.opened if root_task(r) == task and root_incarnation(r) == alive}
        assert mine == {r for r, _ in traffic.verdicts[task] if r in mine}
    lost = sum(
        sum(link.lost.values())
        for core in world.cores.values()
        for link in [
            *(i.link for i in core.connections.instances.values()),
            *(p.link for p in core.connections.peers.values()),
        ]
    )
    assert traffic.emitted - traffic.taken <= lost, "nothing is lost without being counted"
