"""Checkpoints of one stateful task in one generation, and the two-phase commits of its sink.

::

    loaded ──linked──▶ restored ──the plan names it──▶ runs ──▶ aligned: quiet ──resume, cancel──▶ runs

Theory of operation. The executor checks ``is_halted`` before it does anything and ``may_take`` before it takes a frame,
and hands barriers over; ``CheckpointParticipant`` decides. When a quiet point is reached, the executor finishes its
current work and calls ``take``: user code puts its last word into its state, a two-phase sink prepares, the changes are
taken, and barriers for every downstream task follow all frames. The changes are encoded and written elsewhere, while
records are processed again (``on_part``). A *complete* checkpoint leads to commits at the next step of the executor.

A token of a two-phase sink begins with the name of its checkpoint, ``generation-checkpoint-task-incarnation``, so its
owner can be told from the token alone. Tokens of complete checkpoints are committed in order until they are confirmed,
and again after each restore. Tokens of lower generations that the restored checkpoint does not name never become
visible (laws S6 and S7).

Sources: Carbone et al. 2015, section 4; ``docs/decisions/checkpoints.md``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

from heron_instance.core.outbox import Flush
from heron_instance.core.state.barriers import (
    Barrier,
    CheckpointParticipant,
    SnapshotRequest,
    barrier_frame,
    channel_tasks,
    read_barrier,
)
from heron_instance.core.state.snapshot import TaskSnapshot
from heron_instance.core.state.task_state import RestoredState, StateSetup, TaskState, UnclaimedState
from heron_instance.core.user_code import UserCode
from heron_instance.core.values_codec import ValuesCodec
from heron_runtime.model.checkpoints import (
    AdoptionMode,
    CheckpointCommand,
    CommitToken,
    StatePart,
    TaskReport,
    part_name,
)
from heron_runtime.model.plan import NO_CHECKPOINT, GenerationPhase, PhysicalPlan, task_participant
from heron_runtime.wire.data import Frame
from heronry.api.component import bind_state, is_state_replaced
from heronry.api.state import Checkpoint, TwoPhaseSink


class InvalidToken(ValueError):
    """A sink returned a token that does not begin with the name of its checkpoint."""


class TwoPhaseCommits:
    """Two-phase commits of one task in one generation. All calls run user code."""

    def __init__(self, component: Any, generation: int) -> None:
        self._sink = component if isinstance(component, TwoPhaseSink) else None
        self._name = type(component).__name__
        self._generation = generation
        self.unconfirmed: list[CommitToken] = []

    def prepare(self, checkpoint: Checkpoint) -> None:
        """Let the sink prepare. Raises InvalidToken and the exceptions of the sink."""
        if self._sink is None:
            return
        name = self._sink.prepare(checkpoint)
        if name is None:
            return
        if not isinstance(name, str) or not name.startswith(checkpoint.name):
            raise InvalidToken(
                f"{type(self._sink).__name__}.prepare returned {name!r:.80}: a token must begin with checkpoint.name "
                f"({checkpoint.name}), which identifies its owner after a failure"
            )
        self.unconfirmed.append(CommitToken(checkpoint.number, name))

    def commit(self, complete: int) -> None:
        """Commit everything prepared for checkpoints up to this one. Raises the exceptions of the sink."""
        if self._sink is None:
            return
        for token in sorted(token for token in self.unconfirmed if token.checkpoint <= complete):
            self._sink.commit(token.checkpoint, token.name)
            self.unconfirmed.remove(token)

    def restore(self, restored: RestoredState) -> None:
        """Commit again the tokens of the checkpoint, and abort other tokens of lower generations.

        Of a checkpoint adopted from another topology only tokens that wait here are committed: that topology has
        committed the rest, or it wrote elsewhere. Raises UnclaimedState and the exceptions of the sink.
        """
        if self._sink is None:
            if restored.tokens and restored.adopted is AdoptionMode.WHOLE:
                raise UnclaimedState(
                    f"token {restored.tokens[0].name!r}: {self._name} is not a TwoPhaseSink and cannot commit it\n"
                    f"hint: make {self._name} a TwoPhaseSink, or submit with --allow-dropped-state"
                )
            return
        waiting = None if restored.adopted is AdoptionMode.NO else set(self._sink.prepared())
        for token in restored.tokens:
            if waiting is None or token.name in waiting:
                self._sink.commit(token.checkpoint, token.name)
        self.sweep(restored.known_tokens)

    def sweep(self, known: Iterable[str]) -> None:
        """Abort unknown tokens of lower generations."""
        if self._sink is None:
            return
        known = {*known, *(token.name for token in self.unconfirmed)}
        for name in list(self._sink.prepared()):
            generation = generation_of(name)
            if name not in known and generation is not None and generation < self._generation:
                self._sink.abort(name)


def generation_of(token: str) -> int | None:
    """Return the generation in which a token was prepared, or None for another name."""
    first, dash, _ = token.partition("-")
    return int(first) if dash and first.isdecimal() else None


class TaskCheckpointer:
    """Checkpoints of one executor. All calls come from the thread that drives it."""

    def __init__(
        self, plan: PhysicalPlan, task: int, incarnation: int, component: Any, user_code: UserCode, codec: ValuesCodec,
        setup: StateSetup, wall: Callable[[], float],
    ) -> None:  # fmt: skip
        self.generation = plan.generation.number
        self.state = TaskState(plan, task, component, setup.restored, wall)
        self._task = task
        self._name = plan.component_of(task)
        self._incarnation = incarnation
        self._component = component
        self._user_code = user_code
        self._codec = codec
        self._setup = setup
        upstream, self._downstream = channel_tasks(plan, self._name)
        self._participant = CheckpointParticipant(self.generation, upstream, setup.timeout_ms)
        self._tokens = TwoPhaseCommits(component, self.generation)
        self._sent: Counter[int] = Counter()  # frames, by task, in this generation
        self._writing: dict[int, float] = {}  # checkpoint: since when
        self._begin: SnapshotRequest | None = None  # a spout begins it as soon as its call has returned
        self._runs = False
        self.saved = setup.restored.checkpoint  # newest snapshot
        self.reported_complete = setup.restored.checkpoint  # last one reported to user code
        self.snapshot_ms = 0.0  # duration of the last snapshot
        self.written_bytes = 0  # of snapshots; the reader of the counter resets it
        self.report = self._participant.report

    # Questions of the executor.

    @property
    def is_halted(self) -> bool:
        """True while no frame is processed, no tick fires and no spout is called."""
        return not self._runs or self._participant.quiet

    def may_take(self, source: int) -> bool:
        """Return True if a frame of this task may be taken now; it then counts as taken."""
        participant = self._participant
        if not self._runs or not participant.may_take(source):
            return False
        if participant.declined > self.report.declined:
            self._update_report()
        participant.taken(source)
        return True

    def barrier(self, frame: Frame) -> SnapshotRequest | None:
        """Apply a barrier. Raises InvalidBarrier."""
        return self._update_report(self._participant.barrier(frame.source_task, read_barrier(frame)))

    def due(self) -> SnapshotRequest | None:
        """Return the checkpoint that a spout must begin while no call of it is running."""
        begin, self._begin = self._begin, None
        return begin

    def flushed(self, flush: Flush) -> None:
        """Count sent frames."""
        for frame in flush.frames:
            self._sent[frame.destination_task] += 1

    # A quiet point.

    def prepare(self, align: SnapshotRequest) -> None:
        """Call user code before the snapshot; it may emit. Raises the exceptions of user code."""
        checkpoint = self._checkpoint(align.checkpoint)
        self._call("pre_save", str(align.checkpoint))
        if is_state_replaced(self._component, self.state.own):
            raise TypeError(
                f"{self._name} has assigned a new object to self.state, which would not be saved\nhint: change the "
                "existing mapping (self.state[...] = ..., self.state.update(...))"
            )
        with self._user_code("prepare"):
            self._tokens.prepare(checkpoint)

    def take(
        self, align: SnapshotRequest, routing_version: int, now_ms: float, clock: Callable[[], float]
    ) -> list[Frame]:
        """Take the snapshot and enter the quiet. Return the barriers to send after all other frames.

        Raises:
            CannotEncode: Some state cannot be encoded.
            StaleReference: User code has changed a value by a stale reference.
        """
        began = clock()
        number = align.checkpoint
        self.state.check_references()
        with self._user_code("splits"):
            own, groups = self.state.take(number, align.turn)
        draft = StatePart(
            self._name, self._task, self._incarnation, self.generation, number, align.turn, 0, "", self.state.groups,
            tuple(self._tokens.unconfirmed),
        )  # fmt: skip
        snapshot = TaskSnapshot(draft, own, groups, self._codec)
        self._writing[number] = now_ms
        self.saved = number
        self._setup.write(snapshot)
        self._participant.aligned(number, now_ms)
        self._update_report()
        self.snapshot_ms = 1000 * (clock() - began)
        return [
            barrier_frame(
                self._task, task, routing_version, Barrier(self.generation, number, align.turn, self._sent[task])
            )
            for task in self._downstream
        ]

    def on_part(self, part: StatePart) -> None:
        """Take note that a part is written."""
        self.written_bytes += part.size
        if self._writing.pop(part.checkpoint, None) is not None:
            self._participant.stored(part)
            self._update_report()

    def on_part_failed(self, checkpoint: int, why: str) -> None:
        """Decline a checkpoint whose part cannot be written."""
        self._writing.pop(checkpoint, None)
        self._participant.decline(checkpoint, why)
        self._update_report()

    # Commands of the master.

    def follow(self, plan: PhysicalPlan) -> None:
        """Apply a plan of this generation."""
        generation = plan.generation
        if (
            generation.number == self.generation
            and generation.phase is GenerationPhase.RUNNING
            and self.report.restored
        ):
            self._runs = self._runs or generation.incarnation(task_participant(self._task)) == self._incarnation

    def apply_command(self, wish: CheckpointCommand) -> None:
        """Apply a command of the master. Old commands change nothing."""
        participant = self._participant
        if wish.generation != self.generation or not self._runs:
            return
        participant.timeout_ms = wish.timeout_ms
        participant.over(wish.over)
        if self._begin is not None and self._begin.checkpoint <= wish.over:
            self._begin = None
        if participant.completed(wish.complete):
            self.state.completed(wish.complete)
        if wish.under:
            self._begin = participant.begin(wish.under, wish.turn) or self._begin
        self._update_report()

    def linked(self) -> None:
        """Take note that the data connection of this generation is open."""
        self._participant.restored()
        self._update_report()

    def unlinked(self) -> None:
        """Take note that the data connection has ended."""
        self._participant.disconnected()
        self._update_report()

    def failed(self, why: str) -> TaskReport:
        """Return the report of a permanent failure of user code or of the load."""
        report = self._participant.report
        self._runs = False
        self.report = TaskReport(self.generation, report.restored, declined=report.declined, failed=why or "?")
        return self.report

    def tick(self, now_ms: float) -> None:
        """Decline checkpoints that have timed out."""
        if not self._writing and not self._participant.quiet:
            return
        self._participant.tick(now_ms)
        for number, since_ms in list(self._writing.items()):
            if now_ms - since_ms > self._participant.timeout_ms:
                seconds = (now_ms - since_ms) / 1000
                self._participant.decline(number, f"its part was not written within {seconds:.0f} s")
        self._update_report()

    def deadline_ms(self) -> float | None:
        """Return when ``tick`` is due at the latest. A declined checkpoint has no deadline: only the master ends it."""
        participant = self._participant
        times = [
            since_ms + participant.timeout_ms
            for number, since_ms in self._writing.items()
            if number > participant.declined
        ]
        if participant.quiet and not participant.declines_current:
            times.append(participant.quiet_until_ms)
        return min(times, default=None)

    # Before and after.

    def begin(self) -> None:
        """Give the component its state. Raises the exceptions of user code."""
        component, state, restored = self._component, self.state, self._setup.restored
        bind_state(component, state.keyed, state.own)
        if restored.checkpoint != NO_CHECKPOINT:
            self._call("pre_restore", str(restored.checkpoint))
        self._call("init_state", state.own)
        if hasattr(component, "union_state"):
            states, state.states, state.gone = state.states, [], []
            if restored.checkpoint != NO_CHECKPOINT:
                self._call("union_state", states)
        elif state.gone:
            if getattr(component, "merge_state", None) is None:
                raise TypeError(
                    f"{self._name}: {len(state.gone)} removed tasks have left a self.state to merge\nhint: define "
                    "merge_state(states) or union_state(states), or use keyed state (self.keyed)"
                )
            self._call("merge_state", state.gone)

    def settle(self) -> None:
        """Commit and abort the tokens of the restored checkpoint, once the component is initialized."""
        with self._user_code("commit"):
            self._tokens.restore(self._setup.restored)

    def complete(self) -> None:
        """Commit complete checkpoints and notify user code. Raises the exceptions of user code."""
        complete = self._participant.complete
        if complete > self.report.confirmed:
            with self._user_code("commit"):
                self._tokens.commit(complete)
                self._tokens.sweep(())
            self._participant.confirmed(complete)
            self._update_report()
        if complete > self.reported_complete and not self.is_halted:
            self.reported_complete = complete
            self._call("post_save", str(complete))
            self._call("on_checkpoint_complete", complete)

    @property
    def has_completed(self) -> bool:
        """True if ``complete`` has something to do."""
        complete = self._participant.complete
        return complete > self.report.confirmed or (complete > self.reported_complete and not self.is_halted)

    def _call(self, method: str, argument: Any) -> None:
        call = getattr(self._component, method, None)
        if call is not None:
            with self._user_code(method):
                call(argument)

    def _checkpoint(self, number: int) -> Checkpoint:
        name = part_name(self.generation, number, self._task, self._incarnation).removesuffix(".part")
        return Checkpoint(number, self.generation, name)

    def _update_report(self, result: SnapshotRequest | None = None) -> SnapshotRequest | None:
        report = self._participant.report
        if report != self.report and not self.report.failed:
            self.report = report
        return result

    def check(self) -> None:
        """Assert every invariant."""
        self._participant.check()
        if self.state.by_key is not None:
            self.state.by_key.check()
        assert not self._runs or self.report.restored
