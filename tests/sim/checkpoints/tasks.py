"""Process of a task: the production cores ``CheckpointParticipant``, ``KeyedState`` and part files, and a shell."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from heron_instance.core.state.barriers import Barrier, CheckpointParticipant, SnapshotRequest
from heron_instance.core.state.keyed_state import KeyedState
from heron_instance.core.state.snapshot import KeyGroupRows, TaskSnapshot, read_part
from heron_instance.core.values_codec import ValuesCodec
from heron_runtime.model.checkpoints import (
    CheckpointCommand,
    CommitToken,
    Manifest,
    StatePart,
    TaskReport,
    groups_of,
    part_name,
    reading_plan,
)
from heron_runtime.model.keys import group_of
from heron_runtime.model.plan import GenerationPhase, task_participant
from heron_runtime.wire.checkpoint_formats import TASK_STATE

from .outside import Plan, Violation
from .program import COUNT, EDGES, RECORDS, RELAY, SINK, SPLITS, SPOUT, process, record

if TYPE_CHECKING:
    from .simulation import Channel, CheckpointSimulation

CAPACITY = 4  # frames of a channel
HEARTBEAT = 260
CODEC = ValuesCodec()


class Task:
    """Incarnation of a task. It waits for a plan that names a generation, then restores and reports."""

    def __init__(self, world: CheckpointSimulation, task: int, component: str, incarnation: int) -> None:
        self.world, self.task, self.component, self.incarnation = world, task, component, incarnation
        self.dead = self.cut_off = False
        self.stalled_until = 0
        self.epoch = 0
        self.plan: Plan | None = None
        self.participant: CheckpointParticipant | None = None
        self._loading: Iterator[None] | None = None
        self._told_at = -HEARTBEAT
        self.runs = False
        self._begin_afresh(0)

    def _begin_afresh(self, groups: int) -> None:
        self.state = KeyedState(groups)
        self.positions: dict[int, int] = {}
        self.output: list[Any] = []
        self.tokens: list[CommitToken] = []
        self.pending: deque[tuple[int, Any]] = deque()  # (task, a tuple or a barrier)
        self.sent: Counter[int] = Counter()
        self.taken: Counter[int] = Counter()
        self.writes: deque[tuple[StatePart, bytes]] = deque()

    @staticmethod
    def position_in(row: tuple[Any, ...]) -> tuple[int, int]:
        """Return the split and the position in a row of a spout's snapshot."""
        split, position = row
        return split, position

    @staticmethod
    def is_barrier(what: Any) -> bool:
        """Return True if this is a barrier."""
        return isinstance(what, Barrier)

    def cut(self) -> tuple[Counter[int], Counter[int]]:
        """Return how many frames have been sent and received so far, by task."""
        return self.sent, self.taken

    @property
    def upstream(self) -> list[int]:
        assert self.plan is not None
        return [t for a, b in EDGES if b == self.component for t in self.plan.tasks[a]]

    @property
    def downstream(self) -> list[int]:
        assert self.plan is not None
        return [t for a, b in EDGES if a == self.component for t in self.plan.tasks[b]]

    @property
    def report(self) -> TaskReport:
        return self.participant.report if self.participant is not None else TaskReport(0)

    def die(self) -> None:
        self.dead = True
        self.world.disconnect(self)

    # Messages of the master.

    def apply_command(self, epoch: int, plan: Plan, wish: CheckpointCommand) -> None:
        if epoch < self.epoch:
            return
        self.epoch = epoch
        if self.plan is None or plan.version > self.plan.version:
            self._follow(plan)
        taking_part = self.participant
        if taking_part is None or wish.generation != taking_part.generation or not self.runs:
            return
        taking_part.timeout_ms = wish.timeout_ms
        taking_part.over(wish.over)
        if taking_part.completed(wish.complete):
            self.state.completed(wish.complete)
        if wish.under and self.component == SPOUT:
            align = taking_part.begin(wish.under, wish.turn)
            if align is not None:
                self._align(align)

    def _follow(self, plan: Plan) -> None:
        self.plan = plan
        generation = plan.generation
        if self.task not in plan.all_tasks:
            return
        if self.participant is None or generation.number > self.participant.generation:
            self.runs = False
            self.world.disconnect(self)
            self.participant = CheckpointParticipant(generation.number, self.upstream, self.world.timeout)
            self._begin_afresh(groups_of(plan.table, self.task) if self.component == COUNT else 0)
            self._loading = self._restore(plan) if generation.phase is GenerationPhase.RESTORING else None
        if generation.phase is GenerationPhase.RUNNING and self.participant.report.restored:
            named = generation.incarnation(task_participant(self.task))
            self.runs = self.runs or named == self.incarnation

    def _restore(self, plan: Plan) -> Iterator[None]:
        manifest = self.world.storage.manifests[plan.generation.restore_from]
        yield
        try:
            self._load(plan, manifest)
        except Violation:
            if self.world.store.plan.generation.number == plan.generation.number and not self.cut_off:
                raise
            while True:  # it resumed late: the files it needs have been removed meanwhile
                yield
        if self.component == SINK:
            yield from self._settle_tokens(plan, manifest)
        yield
        assert self.participant is not None
        self.world.connect(self, self.upstream, self.downstream, plan.generation.number)
        self.participant.restored()
        self._tell()

    def _load(self, plan: Plan, manifest: Manifest) -> None:
        if self.component == COUNT:
            for part, wanted in reading_plan(manifest.layers.get(COUNT, ()), self.state.groups):
                self.state.load(b for b in self._read(part, wanted) if b.group != TASK_STATE)
        if self.component == SPOUT:
            spouts = plan.tasks[SPOUT]
            stored = {
                split: position
                for part in manifest.parts
                if part.component == SPOUT
                for block in self._read(part, 0)
                for split, position in block.rows
            }
            mine = (split for split in range(SPLITS) if spouts[split % len(spouts)] == self.task)
            self.positions = {split: stored.get(split, 0) for split in mine}

    def _read(self, part: StatePart, groups: int) -> Iterator[KeyGroupRows]:
        data = self.world.storage.read(part.name)
        return read_part(part, lambda offset, size: data[offset : offset + size], groups, CODEC)

    def _settle_tokens(self, plan: Plan, manifest: Manifest) -> Iterator[None]:
        """Commit the tokens that the checkpoint names, and abort the remaining ones of lower generations."""
        for token in manifest.tokens_of(self.task, plan.tasks[SINK], SINK):
            self.world.outside.commit(token.name)
            yield
        self.world.fault_here(self, often=True)
        yield
        for name in self.world.sweepable(plan.generation.number, manifest):
            self.world.outside.abort(name)
            yield

    # Steps.

    def step(self) -> None:
        draw = self.world.draw
        if self.world.now - self._told_at > HEARTBEAT:
            self._tell()
            return
        if self._loading is not None:
            if next(self._loading, self) is self:
                self._loading = None
            return
        taking_part = self.participant
        if taking_part is None or not self.runs:
            return
        taking_part.tick(self.world.now)
        if self.writes and draw.random() < 0.4:
            self._write(taking_part)
        elif self.component == SINK and draw.random() < self.world.commit_rate:
            self._commit(taking_part)
        self._flush()
        if self.component == SPOUT and not self.pending and not taking_part.quiet:
            self._emit()
        if not self.pending:
            self._take(taking_part)

    def _tell(self) -> None:
        self._told_at = self.world.now
        self.world.tell_master(self, self.report)

    def _write(self, taking_part: CheckpointParticipant) -> None:
        part, data = self.writes.popleft()
        if self.world.storage_fails():
            taking_part.decline(part.checkpoint, "the storage does not take it")
        else:
            self.world.storage.files[part.name] = data
            taking_part.stored(part)
        self._tell()

    def _commit(self, taking_part: CheckpointParticipant) -> None:
        due = [token for token in self.tokens if token.checkpoint <= taking_part.complete]
        if due:
            self.world.outside.commit(min(due).name)
            self.tokens.remove(min(due))
        else:
            taking_part.confirmed(taking_part.complete)

    def _emit(self) -> None:
        ready = [split for split, position in self.positions.items() if position < RECORDS]
        if not ready or self.world.draw.random() > 0.15:
            return
        assert self.plan is not None
        split = self.world.draw.choice(ready)
        item = record(split, self.positions[split])
        self.positions[split] += 1
        self._send(self.world.draw.choice(self.plan.tasks[RELAY]), (item, 0))
        self._send(self.plan.table[group_of(item[1])], (item, 1))

    def _send(self, task: int, values: Any) -> None:
        self.sent[task] += 1
        self.pending.append((task, values))

    def _flush(self) -> None:
        while self.pending:
            task, what = self.pending[0]
            channel = self.world.channel(self.task, task, self)
            if channel is None:
                self.pending.popleft()  # it broke: the frame is lost, and the break is reported
                continue
            if not self.is_barrier(what) and sum(not self.is_barrier(f) for f in channel.queue) >= CAPACITY:
                return
            channel.queue.append(what)
            self.pending.popleft()

    def _take(self, taking_part: CheckpointParticipant) -> None:
        ready = [c for c in self.world.channels_to(self) if c.queue]
        if not ready:
            return
        channel = self.world.draw.choice(ready)
        first = channel.queue[0]
        if isinstance(first, Barrier):
            channel.queue.popleft()
            align = taking_part.barrier(channel.source, first)
            if align is not None:
                self._align(align)
            return
        if taking_part.may_take(channel.source):
            channel.queue.popleft()
            taking_part.taken(channel.source)
            self.taken[channel.source] += 1
            self._process(first)

    def _process(self, values: Any) -> None:
        assert self.plan is not None
        if self.component == SINK:
            self.output.append(values)
            return
        item, half = values
        if self.component == RELAY:
            self._send(self.plan.table[group_of(item[1])], values)
            return
        sinks = self.plan.tasks[SINK]
        for out in process(self.state, item, half):
            self._send(sinks[(out[0] * 31 + len(out[1])) % len(sinks)], out)

    def _align(self, align: SnapshotRequest) -> None:
        taking_part = self.participant
        assert taking_part is not None
        generation, number = taking_part.generation, align.checkpoint
        if self.component == SINK and self.output:
            token = CommitToken(number, part_name(generation, number, self.task, self.incarnation))
            self.world.outside.prepare(token.name, self.output)
            self.tokens.append(token)
            self.output = []
        draft = StatePart(
            self.component, self.task, self.incarnation, generation, number, align.turn, 0, "", self.state.groups,
            tuple(self.tokens),
        )  # fmt: skip
        own = list(self.positions.items())
        part, pieces = TaskSnapshot(draft, own, self.state.take(number, align.turn), CODEC).encode()
        self.writes.append((part, b"".join(pieces)))
        self.world.note_cut(part, self)
        for task in self.downstream:
            self.pending.append((task, Barrier(generation, number, align.turn, self.sent[task])))
        taking_part.aligned(number, self.world.now)
        self.world.fault_here(self)
        self._tell()
        taking_part.check()
        self.state.check()

    def notice_break(self, channel: Channel) -> None:
        if self.participant is not None and channel.generation == self.participant.generation:
            self.participant.disconnected()
            self._tell()
