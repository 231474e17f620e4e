"""The checkpoint simulation with the production executors: user code, batches, flushes, gates, and wire frames.

``EngineTask`` replaces ``Task``. It consists of the same parts as an instance, except for the shell.
"""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from heron_instance.core.bolt_executor import BoltExecutor
from heron_instance.core.spout_executor import SpoutExecutor
from heron_instance.core.state.barriers import CheckpointParticipant
from heron_instance.core.state.checkpointer import TaskCheckpointer
from heron_instance.core.state.snapshot import TaskSnapshot
from heron_instance.core.state.task_state import StateSetup
from heron_instance.core.task import ExecutorSetup
from heron_instance.shell.checkpoint_io import CannotRestore, load_restored_state
from heron_runtime.model.checkpoints import CheckpointCommand, TaskReport
from heron_runtime.model.plan import (
    ContainerPlan,
    GenerationPhase,
    InstancePlan,
    KeyGroupTable,
    PackingPlan,
    PhysicalPlan,
    PlanVersion,
)
from heron_runtime.model.topology import (
    ComponentKind,
    ComponentSpec,
    GroupingKind,
    GroupingSpec,
    InputSpec,
    StreamSchema,
    TopologyDefinition,
)
from heron_runtime.wire.data import BARRIER, Frame
from heronry.api.component import Bolt, Spout
from heronry.api.dead_letters import DeadLetter
from heronry.api.state import Checkpoint, TwoPhaseSink

from .outside import Plan, Violation
from .program import COUNT, RECORDS, RELAY, SINK, SPLITS, SPOUT, is_bad, process_good, record
from .tasks import CODEC, HEARTBEAT, Task

if TYPE_CHECKING:
    from .simulation import CheckpointSimulation

IN_HAND = 3  # frames an executor holds
FIELDS = ("number", "key", "half")
BY_KEY = GroupingSpec(GroupingKind.FIELDS, ("key",))
SHUFFLE = GroupingSpec(GroupingKind.SHUFFLE)


class Source(Spout):
    """Spout that reads its splits, one record at a time, when the simulation permits it."""

    world: CheckpointSimulation

    def splits(self) -> list[tuple[str, int]]:
        return [(f"s{split}", split) for split in range(SPLITS)]

    def next_tuple(self) -> None:
        if self.world.draw.random() < 0.15:
            self._emit_one()

    def on_checkpoint_complete(self, checkpoint: int) -> None:
        self._emit_one()  # a paused spout emits it as well

    def _emit_one(self) -> None:
        ready = [split for split in self.owned_splits() if self.keyed.get(split, 0) < RECORDS]
        if not ready:
            return
        name = self.world.draw.choice(ready)
        position = self.keyed.get(name, 0)
        number, key = record(int(name[1:]), position)
        self.keyed[name] = position + 1
        self.emit((number, key, 0), stream="relayed")
        self.emit((number, key, 1), stream="straight")


class Relay(Bolt):
    """Bolt that holds one tuple back and emits it before each checkpoint."""

    auto_ack = True
    held: Any = None

    def process(self, tup: Any) -> None:
        self.pre_save("")
        self.held = tup.values

    def pre_save(self, checkpoint_id: str) -> None:
        if self.held is not None:
            self.emit(self.held)
            self.held = None


class Bad(Exception):
    """Exception for a bad record."""


class Count(Bolt):
    """Bolt that detects a bad record only after changing state and emitting, so that everything must be undone."""

    auto_ack = True
    dead_letters = "bad"

    def process(self, tup: Any) -> None:
        number, key, half = tup.values
        for out in process_good(self.keyed, (number, key), half):
            self.emit(out)
        if is_bad((number, key)):
            raise Bad(number)


class Sink(TwoPhaseSink):
    world: CheckpointSimulation

    def initialize(self, config: Any, context: Any) -> None:
        self.rows: list[Any] = []

    def process(self, tup: Any) -> None:
        if tup.stream == "bad":
            number, _, half = DeadLetter.of(tup).values
            self.rows.append((number, f"bad {half}"))
        else:
            self.rows.append(tuple(tup.values))

    def prepare(self, checkpoint: Checkpoint) -> str | None:
        rows, self.rows = self.rows, []
        if not rows:
            return None
        self.world.outside.prepare(checkpoint.name, rows)
        return checkpoint.name

    def commit(self, checkpoint: int, token: str) -> None:
        self.world.outside.commit(token)

    def abort(self, token: str) -> None:
        self.world.outside.abort(token)

    def prepared(self) -> list[str]:
        return sorted(self.world.outside.prepared)


CLASSES: dict[str, Any] = {SPOUT: Source, RELAY: Relay, COUNT: Count, SINK: Sink}
SPECS = (
    ComponentSpec(
        SPOUT, ComponentKind.SPOUT, "x:Source", 1, (StreamSchema("relayed", FIELDS), StreamSchema("straight", FIELDS))
    ),
    ComponentSpec(
        RELAY, ComponentKind.BOLT, "x:Relay", 1, (StreamSchema("default", FIELDS),),
        (InputSpec(SPOUT, "relayed", SHUFFLE),),
    ),
    ComponentSpec(
        COUNT, ComponentKind.BOLT, "x:Count", 1,
        (StreamSchema("default", ("number", "what")), StreamSchema("bad", DeadLetter._fields)),
        (InputSpec(SPOUT, "straight", BY_KEY), InputSpec(RELAY, "default", BY_KEY)),
    ),
    ComponentSpec(
        SINK, ComponentKind.BOLT, "x:Sink", 1, (),
        (InputSpec(COUNT, "default", SHUFFLE), InputSpec(COUNT, "bad", SHUFFLE)),
    ),
)  # fmt: skip
TOPOLOGY = TopologyDefinition("sim", "sim", SPECS, {"topology.reliability.mode": "EFFECTIVELY_ONCE"})


def physical(plan: Plan) -> PhysicalPlan:
    """Return the plan in the form that instances get."""
    names = [(task, name) for name, tasks in plan.tasks.items() for task in tasks]
    instances = tuple(InstancePlan(task, name, 0) for task, name in sorted(names))
    return PhysicalPlan(
        PlanVersion(1, plan.version),
        plan.generation.number,
        TOPOLOGY,
        PackingPlan("sim", (ContainerPlan(1, instances),)),
        key_groups=(KeyGroupTable(COUNT, plan.table),),
        generation=plan.generation,
    )


class Silent:
    """Telemetry that discards everything."""

    def count(self, name: str, n: float = 1) -> None: ...
    def gauge(self, name: str, value: float) -> None: ...
    def latency(self, name: str, milliseconds: float, weight: float = 1) -> None: ...
    def exception(self, class_name: str, message: str, traceback: str, now: float, n: int = 1) -> None:
        if class_name != Bad.__name__:
            raise Violation(f"user code raised {class_name}: {message}\n{traceback}")


class Folder:
    """The simulation's storage as a folder of checkpoints."""

    folder = "the storage"

    def __init__(self, world: CheckpointSimulation) -> None:
        self._storage = world.storage

    def read_manifest(self, checkpoint: int) -> Any:
        return self._storage.manifests[checkpoint]

    @contextlib.contextmanager
    def open_part(self, name: str) -> Iterator[Callable[[int, int], bytes]]:
        if name not in self._storage.files:
            raise FileNotFoundError(name)
        data = self._storage.files[name]
        yield lambda offset, size: data[offset : offset + size]


class EngineTask(Task):
    """Process of a task: an executor per generation, and replacements of gateway and runner."""

    executor: Any = None
    _generation = 0

    @staticmethod
    def position_in(row: tuple[Any, ...]) -> tuple[int, int]:
        (_, split), position = row
        return int(split[1:]), position

    @staticmethod
    def is_barrier(what: Any) -> bool:
        return bool(what.codec == BARRIER)

    def _begin_afresh(self, groups: int) -> None:
        self.executor = None
        self.pending: deque[tuple[int, Any]] = deque()
        self.writes: deque[TaskSnapshot] = deque()
        self._told: TaskReport | None = None
        self._has_aligned = False

    @property
    def stateful(self) -> TaskCheckpointer | None:
        return None if self.executor is None else self.executor.checkpointer

    @property
    def participant(self) -> Any:
        if self.stateful is not None:
            return self.stateful._participant
        return CheckpointParticipant(self._generation, (), 0.0) if self._generation else None

    @participant.setter
    def participant(self, value: Any) -> None:
        """Ignore the assignment: the executor owns the participant."""

    def cut(self) -> tuple[Any, Any]:
        assert self.stateful is not None
        return self.executor.output.sent_frames, self.participant._frames

    @property
    def report(self) -> TaskReport:
        return TaskReport(self._generation) if self.stateful is None else self.stateful.report

    # Messages of the master.

    def apply_command(self, epoch: int, plan: Plan, wish: CheckpointCommand) -> None:
        if epoch < self.epoch:
            return
        self.epoch = epoch
        if self.plan is None or plan.version > self.plan.version:
            self._follow(plan)
        if self.stateful is not None:
            self.stateful.apply_command(wish)
            self.executor.on_wake(self.world.now)

    def _follow(self, plan: Plan) -> None:
        self.plan = plan
        generation = plan.generation
        if self.task not in plan.all_tasks:
            return
        if generation.number > self._generation:
            self.world.disconnect(self)
            if self.executor is not None:
                self.executor.stop(self.world.now)
            self._begin_afresh(0)
            self._generation = generation.number
            self._loading = self._restore(plan) if generation.phase is GenerationPhase.RESTORING else None
        elif self.executor is not None:
            self.executor.on_plan(self.world.now, physical(plan))
            self.executor.checkpointer.follow(physical(plan))

    def _restore(self, plan: Plan) -> Iterator[None]:
        world, whole = self.world, physical(plan)
        yield
        component = CLASSES[self.component]()
        component.world = world
        try:
            restored = load_restored_state(Folder(world), whole, self.task, CODEC)  # type: ignore[arg-type]
            setup = ExecutorSetup(
                component=component, plan=whole, task=self.task, incarnation=self.incarnation,
                rng=np.random.default_rng(world.draw.randrange(1 << 30)), telemetry=Silent(),
                clock=lambda: world.now / 1000, wall=lambda: 0.0,
                state=StateSetup(self._write_later, world.timeout, restored),
            )  # fmt: skip
            executor: Any = SpoutExecutor(setup) if self.component == SPOUT else BoltExecutor(setup)
        except CannotRestore as missing:
            if world.store.plan.generation.number == plan.generation.number and not self.cut_off:
                raise Violation(f"S5: {missing}") from missing
            while True:  # it resumed late: the files it needs have been removed meanwhile
                yield
        world.fault_here(self, often=True)
        yield
        executor.start()
        executor.on_stream_manager(world.now, 1)
        yield
        self.executor = executor
        world.connect(self, self.upstream, self.downstream, plan.generation.number)
        executor.checkpointer.linked()
        assert self.plan is not None
        executor.checkpointer.follow(physical(self.plan))
        self._tell()

    # Steps.

    def step(self) -> None:
        world = self.world
        if world.now - self._told_at > HEARTBEAT:
            self._tell()
            return
        if self._loading is not None:
            if next(self._loading, self) is self:
                self._loading = None
            return
        stateful = self.stateful
        if stateful is None:
            return
        if self.writes and world.draw.random() < 0.4:
            self._write_part(stateful)
        self._flush_frames()
        if self.component != SPOUT and not self.pending:
            self._receive()
        elif world.draw.random() < 0.05:
            self.executor.on_pause(world.now, world.faulty and not self.executor.paused)
        if not self.pending:
            result = self.executor.run(world.now)
            for flush in result.flushes:
                self.pending += [(frame.destination_task, frame) for frame in flush.frames]
            stateful.check()
            self.executor.check()
        if self.executor.failed is not None:
            raise Violation(f"{self.executor.failed}")
        if stateful.report is not self._told:
            self._tell()
        if self._has_aligned:
            self._has_aligned = False
            world.fault_here(self)

    def _tell(self) -> None:
        self._told_at = self.world.now
        self._told = self.report
        self.world.tell_master(self, self._told)

    def _write_later(self, snapshot: TaskSnapshot) -> None:
        self.writes.append(snapshot)
        self.world.note_cut(snapshot.draft, self)
        self._has_aligned = True

    def _write_part(self, stateful: TaskCheckpointer) -> None:
        part, pieces = self.writes.popleft().encode()
        if self.world.storage_fails():
            stateful.on_part_failed(part.checkpoint, "the storage does not take it")
        else:
            self.world.storage.files[part.name] = b"".join(pieces)
            stateful.on_part(part)

    def _flush_frames(self) -> None:
        before = len(self.pending)
        frames: list[Frame] = [frame for _, frame in self.pending]
        self._flush()
        for frame in frames[: before - len(self.pending)]:
            self.executor.on_sent(self.world.now, frame.weight())

    def _receive(self) -> None:
        while len(self.executor._frames) < IN_HAND and self.world.draw.random() < 0.8:
            ready = [channel for channel in self.world.channels_to(self) if channel.queue]
            if not ready:
                return
            self.executor.on_frames(self.world.now, [self.world.draw.choice(ready).queue.popleft()])

    def notice_break(self, channel: Any) -> None:
        if self.stateful is not None and channel.generation == self._generation:
            self.stateful.unlinked()
            self._tell()
