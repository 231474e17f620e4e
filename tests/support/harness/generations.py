"""Test harness for stream manager cores whose plan changes its generation, with delayed connections.

A hello, its answer and the end of a connection each take time, so the two ends of a connection change independently.
A frame carries its generation in its values, and the receiver compares it. All invariants are checked after each event.
A schedule is a seed.
"""

from __future__ import annotations

import random
from collections import deque
from dataclasses import dataclass, field, replace
from typing import Any

from heron_runtime.model.checkpoints import CheckpointCommand, TaskReport
from heron_runtime.model.ids import PROTOCOL_VERSION
from heron_runtime.model.plan import (
    Generation,
    GenerationMember,
    GenerationPhase,
    PhysicalPlan,
    stream_manager_of,
    task_participant,
)
from heron_runtime.wire.control import CheckpointCommand as Wish
from heron_runtime.wire.control import Credit, InstanceHello, PeerHello, PlanUpdate
from heron_runtime.wire.data import Packet
from heron_runtime.wire.master import Heartbeat, HeartbeatReply, ParticipantReport
from stream_manager.core import events as e
from stream_manager.core.stream_manager import StreamManager
from tests.support.harness.stream_managers import PLACES, TOPOLOGY_ID, frame, make_plan

SETTINGS = {"heron.streammgr.upload.window.bytes": 3000, "heron.streammgr.peer.window.bytes": 3000}
CONFIG: dict[str, Any] = {
    "topology__backpressure__high__watermark__bytes": 1000,
    "topology__backpressure__low__watermark__bytes": 300,
}
CONTAINERS = tuple(PLACES)
TASKS = {task: container for container, tasks in PLACES.items() for task in tasks}
WINDOW = 1000


@dataclass
class End:
    """One end of a connection, as its stream manager sees it; ``named``: the generations of its hellos."""

    number: int
    container: int
    named: tuple[int, ...]
    peer: int = 0
    task: int = 0
    twin: End | None = None
    ended: bool = False
    control: deque[Any] = field(default_factory=deque)  # to the other end
    data: deque[Packet] = field(default_factory=deque)
    opening: bool = False  # the other end has opened the data stream
    # Of an instance's end.
    limit: int = 0
    sent: int = 0
    sequence: int = 0
    taken: int = 0
    has_data: bool = False
    waiting: int = 0  # bytes received and not processed
    wish: Wish | None = None
    report: TaskReport | None = None
    has_plan: bool = False


class GenerationHarness:
    """Stream managers, instances and the state of the master. ``lives`` counts those of each stream manager."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.cores: dict[int, StreamManager] = {}
        self.ends: dict[int, End] = {}
        self.living: dict[int, End] = {}  # open ends
        self.ready: dict[int, None] = {}
        self.lives = dict.fromkeys(CONTAINERS, 0)
        self.calls: list[tuple[int, int, PeerHello]] = []
        self.answers: list[tuple[End, int, PeerHello, PeerHello]] = []
        self.generation = Generation(1, GenerationPhase.RESTORING)
        self.plans: list[PhysicalPlan] = []
        self.heard = dict.fromkeys(CONTAINERS, -1)  # index of the last plan
        self.master: dict[int, bool] = dict.fromkeys(CONTAINERS, False)
        self.told: dict[int, tuple[ParticipantReport, ...]] = {}
        self.wishes: dict[int, Wish | None] = dict.fromkeys(CONTAINERS)
        self.wish = Wish(1)
        self.was_open: dict[int, set[int]] = {c: set() for c in CONTAINERS}
        self.over: set[tuple[int, int, int]] = set()  # (container, life, generation) in which a connection has ended
        self.accepted = self.delivered = self.buried = 0
        self.now_ms = 0
        self.publish()
        for container in CONTAINERS:
            self.boot(container)

    # Stream managers and plans.

    def incarnation(self, container: int) -> int:
        return 100 * container + self.lives[container]

    def boot(self, container: int) -> None:
        info = replace(self.plans[-1].stream_managers[container - 1], incarnation=self.incarnation(container))
        self.cores[container] = StreamManager(TOPOLOGY_ID, info, SETTINGS, self.now_ms)
        self.master[container], self.wishes[container] = False, None
        self.was_open[container] = set()
        if self.heard[container] >= 0:
            self.tell(container, e.PlanLoaded(self.plans[self.heard[container]], 1))

    def publish(self) -> None:
        """Store a plan of the current generation with the current stream managers."""
        named = {container: self.incarnation(container) for container in CONTAINERS}
        plan = make_plan(number=len(self.plans) + 1, incarnations=named, **CONFIG)
        self.plans.append(replace(plan, generation=self.generation))

    def next_generation(self) -> None:
        self.generation = Generation(self.generation.number + 1, GenerationPhase.RESTORING)
        self.publish()

    def run_generation(self) -> None:
        """Start the generation if all have reported, and list them in the plan."""
        if self.generation.phase is GenerationPhase.RESTORING and all(self.says_restored(c) for c in CONTAINERS):
            members = [GenerationMember(stream_manager_of(c), self.incarnation(c)) for c in CONTAINERS]
            members += [GenerationMember(task_participant(task), 1) for task in TASKS]
            self.generation = replace(self.generation, phase=GenerationPhase.RUNNING, members=tuple(members))
            self.publish()

    def says_restored(self, container: int) -> bool:
        own = self.told.get(container, ())[:1]
        wanted = (self.incarnation(container), self.generation.number, True, "")
        return [(o.incarnation, o.report.generation, o.report.restored, o.report.lost) for o in own] == [wanted]

    def hear_plan(self, container: int, index: int) -> None:
        if index > self.heard[container] and self.master[container]:
            self.heard[container] = index
            self.tell(container, e.MasterMessage(PlanUpdate(self.plans[index], 1)))

    def say_wish(self, container: int) -> None:
        if self.master[container]:
            self.wishes[container] = self.wish
            self.tell(container, e.MasterMessage(HeartbeatReply(1, wish=self.wish)))

    def restart(self, container: int) -> None:
        """Restart the stream manager with the data on its disk."""
        core = self.cores[container]
        self.buried += sum(q.unconfirmed.__len__() + len(q.frames) for n in core.connections.all()
                           for q in n.link.destinations.values())  # fmt: skip
        self.buried += sum(core.forwarder.stale.values())
        self.buried += sum(sum(n.link.lost.values()) for n in core.connections.all()) + core.forwarder.moved_frames
        self.lives[container] += 1
        self.calls = [call for call in self.calls if call[0] != container]
        for end in [end for end in self.living.values() if end.container == container]:
            self.bury(end)
        self.told.pop(container, None)
        self.boot(container)

    # Connections.

    def end_of(self, container: int, named: tuple[int, ...], **who: int) -> End:
        number = len(self.ends) + 1
        found = self.ends[number] = self.living[number] = End(number, container, named, **who)
        return found

    def dial(self, a: int, b: int) -> None:
        self.calls.append((a, b, self.cores[a].peer_hello()))

    def answer(self, a: int, b: int, said: PeerHello) -> None:
        us = self.cores[b].peer_hello()
        end = self.end_of(b, (said.generation, us.generation), peer=a)
        self.tell(b, e.ConnectionOpened(end.number, said, us.generation))
        self.answers.append((end, a, said, us))

    def answered(self, other: End, a: int, said: PeerHello, us: PeerHello) -> None:
        if said.incarnation != self.incarnation(a):
            other.twin = other  # the caller is gone
            return
        end = self.end_of(a, (said.generation, us.generation), peer=other.container)
        end.twin, other.twin = other, end
        self.tell(a, e.ConnectionOpened(end.number, us, said.generation))
        if not end.ended:
            other.opening = True
            self.tell(a, e.DataStreamOpened(end.number))

    def join(self, task: int, generation: int) -> End:
        """Open a connection of this generation for an instance, replacing its current one."""
        old = self.instance(task)
        if old is not None:
            self.hang_up(old)
        end = self.end_of(TASKS[task], (generation,), task=task)
        self.tell(
            TASKS[task],
            e.ConnectionOpened(end.number, InstanceHello(PROTOCOL_VERSION, TOPOLOGY_ID, task, 1, 1, generation)),
        )
        return end

    def open_instance(self, end: End) -> None:
        if not end.has_data and not end.ended:
            end.has_data = True
            self.tell(end.container, e.DataStreamOpened(end.number))
            if not end.ended:
                self.tell(end.container, e.ControlReceived(end.number, Credit(WINDOW)))

    def instance(self, task: int) -> End | None:
        return next((end for end in reversed(self.living.values()) if end.task == task), None)

    def bury(self, end: End) -> None:
        end.ended = True
        del self.living[end.number]
        self.ready.pop(end.number, None)

    def hang_up(self, end: End) -> None:
        """Close a connection at this end, by decision or after noticing a break."""
        if not end.ended:
            self.bury(end)
            self.tell(end.container, e.ConnectionEnded(end.number))

    # Messages.

    def tell(self, container: int, event: e.Event) -> None:
        if isinstance(event, e.MasterConnected | e.MasterDisconnected):
            self.master[container] = isinstance(event, e.MasterConnected)
            self.told.pop(container, None)
        self.act(container, self.cores[container].handle(event))

    def act(self, container: int, effects: list[e.Effect]) -> None:
        for effect in effects:
            if isinstance(effect, e.SendToMaster) and isinstance(effect.message, Heartbeat):
                self.told[container] = effect.message.reports
            elif isinstance(effect, e.SendMessage):
                end = self.ends[effect.connection]
                if end.task:
                    self.instance_hears(end, effect.message)
                else:
                    end.control.append(effect.message)
            elif isinstance(effect, e.WakeLink):
                self.ready[effect.connection] = None
        self.checked(container)
        for effect in effects:
            if isinstance(effect, e.EndConnection):
                self.hang_up(self.ends[effect.connection])

    def instance_hears(self, end: End, message: Any) -> None:
        if isinstance(message, Credit):
            end.limit = message.limit_bytes
        elif isinstance(message, PlanUpdate):
            end.has_plan = True
        elif isinstance(message, CheckpointCommand):
            end.wish = message

    def report(self, end: End, report: TaskReport) -> None:
        if not end.ended:
            end.report = report
            self.tell(end.container, e.ControlReceived(end.number, report))

    def send(self, end: End, destination: int) -> None:
        """Send a frame of an instance, which names its generation."""
        if end.has_data and not end.ended and end.sent < end.limit:
            sent = frame(end.task, destination, b"%6d" % end.named[0] + bytes(self.rng.choice((10, 600))))
            end.sent += sent.weight()
            end.sequence += 1
            self.accepted += 1
            self.act(end.container, self.cores[end.container].packet(end.number, Packet(end.sequence, frames=[sent])))

    def take(self, end: End) -> None:
        """Process all frames of an instance."""
        if end.waiting and not end.ended:
            end.taken, end.waiting = end.taken + end.waiting, 0
            self.tell(end.container, e.ControlReceived(end.number, Credit(end.taken + WINDOW, 0, end.taken)))

    def pump(self, end: End) -> bool:
        if end.ended or not (end.task or end.twin):
            return False
        packet, effects = self.cores[end.container].next_packet(end.number)
        if packet is None:
            self.ready.pop(end.number, None)
        elif end.task:
            for got in packet.frames:
                assert int(got.values[:6]) == end.named[0], "no frame is delivered in another generation"
                end.waiting += got.weight()
            self.delivered += len(packet.frames)
        else:
            end.data.append(packet)
        self.act(end.container, effects)
        return packet is not None

    def deliver(self, end: End) -> bool:
        """Deliver a message from this end to the other."""
        twin = end.twin
        if twin is None or twin.ended:
            return False
        if twin.opening:
            twin.opening = False
            self.tell(twin.container, e.DataStreamOpened(twin.number))
        elif end.control:
            self.tell(twin.container, e.ControlReceived(twin.number, end.control.popleft()))
        elif end.data:
            self.act(twin.container, self.cores[twin.container].packet(twin.number, end.data.popleft()))
        elif end.ended:
            self.hang_up(twin)
        else:
            return False
        return True

    def tick(self, ms: int) -> None:
        self.now_ms += ms
        for container in CONTAINERS:
            self.tell(container, e.Tick(self.now_ms))

    # Invariants after every event.

    def checked(self, container: int) -> None:
        core = self.cores[container]
        core.check_control()
        plan = core.current.routes.plan
        generation = plan.generation
        number, life = generation.number, (container, self.lives[container], generation.number)
        open_now = {n.connection for n in core.connections.all() if n.link.is_open and n.connection is not None}
        for connection in open_now:
            assert set(self.ends[connection].named) == {number}, "what carries frames is of the plan's generation"
        known = {c for c in self.was_open[container] if set(self.ends[c].named) == {number}}
        assert not (open_now - known and life in self.over), "after an end nothing opens in that generation"
        if number and known - open_now:
            self.over.add(life)
        self.was_open[container] = open_now
        own = generation.incarnation(stream_manager_of(container))
        if own not in (None, self.incarnation(container)):
            assert not open_now, "who is not named takes part in nothing"
        self.check_words(container, number)

    def check_words(self, container: int, number: int) -> None:
        """Check that reports to master and instances are current."""
        core = self.cores[container]
        mine = [end for end in self.living.values() if end.container == container and end.task]
        here = [end for end in mine if core.connections.at(end.number) is not None]
        if self.master[container] and number:
            own, *others = self.told[container]
            wanted = [(end.task, end.report) for end in sorted(here, key=lambda end: end.task) if end.report]
            assert [(o.place.number, o.report) for o in others] == wanted, "reports of instances reach the master"
            peers = [core.connections.peer(c) for c in CONTAINERS if c != container]
            linked = all(p.link.is_open and p.connection is not None for p in peers)
            over = (container, self.lives[container], number) in self.over
            assert own.report.restored == (linked and not own.report.lost), "restored when all peers are open"
            assert bool(own.report.lost) >= over, "the first end is reported"
            assert (own.incarnation, own.report.generation) == (self.incarnation(container), number)
        for end in here:
            assert not end.has_plan or end.wish == self.wishes[container], "the master's wish reaches every instance"
