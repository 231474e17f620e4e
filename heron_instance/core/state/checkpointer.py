"""Checkpoints of one stateful task in one generation, and the two-phase commits of its sink.

::

    loaded ──linked──▶ restored ──the plan names it──▶ runs ──▶ aligned: quiet ──resume, cancel──▶ runs

Theory of operation. The executor checks ``is_halted`` before it does anything and ``can_take`` before it takes a frame,
hands barriers over, and calls ``run_due_work`` between two calls of user code; ``CheckpointParticipant`` decides. A
quiet point (``align``) is taken while no input is in progress: user code puts its last word into its state, a two-phase
sink prepares, all emitted rows are routed and flushed, the changes are taken, and barriers for every downstream task
follow all frames. The changes are encoded and written elsewhere, while records are processed again (``on_part``). A
*complete* checkpoint leads to commits at the next ``run_due_work``.

A token of a two-phase sink begins with the name of its checkpoint, ``generation-checkpoint-task-incarnation``, so its
owner can be told from the token alone. Tokens of complete checkpoints are committed in order until they are confirmed,
and again after each restore. Tokens of lower generations that the restored checkpoint does not name never become
visible (laws S6 and S7).

Sources: Carbone et al. 2015, section 4; ``docs/decisions/checkpoints.md``.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from heron_instance.core.collector import TaskCollector
from heron_instance.core.emit_gate import EmitThreadGuard
from heron_instance.core.output import TaskOutput
from heron_instance.core.state.barriers import (
    Barrier,
    CheckpointParticipant,
    InvalidBarrier,
    SnapshotRequest,
    barrier_frame,
    channel_tasks,
    read_barrier,
)
from heron_instance.core.state.snapshot import TaskSnapshot
from heron_instance.core.state.task_state import RestoredState, StateSetup, UnclaimedState
from heron_instance.core.task import TaskRuntime
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
from heron_runtime.wire.data import BARRIER, Frame
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
    """Checkpoints of one executor. All calls come from the thread that drives it.

    Args:
        task: Component with its collaborators. It owns the state.
        setup: Restored state, and writer of snapshots.
        codec: Encodes snapshots. It is not the codec of emitted values, which counts the batches it pickles.
        collector: Collector of the task.
        output: Output of the task. It counts the frames that each barrier names.
        guard: Finds emits of other threads, if they can be found.
    """

    def __init__(
        self, task: TaskRuntime, setup: StateSetup, codec: ValuesCodec, collector: TaskCollector, output: TaskOutput,
        guard: EmitThreadGuard | None,
    ) -> None:  # fmt: skip
        plan = output.plan
        self.generation = plan.generation.number
        self._task = task
        self._component = task.component
        self._user_code = task.user_code
        self._state = task.state
        self._setup = setup
        self._codec = codec
        self._collector = collector
        self._output = output
        self._guard = guard
        upstream, self._downstream = channel_tasks(plan, task.name)
        self._participant = CheckpointParticipant(self.generation, upstream, setup.timeout_ms)
        self._tokens = TwoPhaseCommits(task.component, self.generation)
        self._writing: dict[int, float] = {}  # checkpoint: since when
        self._begin: SnapshotRequest | None = None  # a spout begins it as soon as its call has returned
        self._runs = False
        self.saved = setup.restored.checkpoint  # newest snapshot
        self.reported_complete = setup.restored.checkpoint  # last one reported to user code
        self.report = self._participant.report

    # Between two calls of user code.

    @property
    def is_halted(self) -> bool:
        """True while no frame is processed, no tick fires and no spout is called."""
        return not self._runs or self._participant.quiet

    def can_take(self, frame: Frame, batch_begun: bool) -> bool:
        """Return True if the next frame may be taken now. No batch spans a barrier."""
        if frame.codec == BARRIER:
            return not batch_begun
        return self.may_take(frame.source_task)

    def may_take(self, source: int) -> bool:
        """Return True if a data frame of this task may be taken now; it then counts as taken."""
        participant = self._participant
        if not self._runs or not participant.may_take(source):
            return False
        if participant.declined > self.report.declined:
            self._update_report()
        participant.taken(source)
        return True

    def barrier(self, frame: Frame) -> None:
        """Handle a barrier taken from data-in while no input is in progress."""
        try:
            align = self._participant.barrier(frame.source_task, read_barrier(frame))
        except InvalidBarrier as error:
            self._task.errors.record_exception(error, "input")
            return
        self._update_report()
        if align is not None:
            self.align(align)

    def due(self) -> SnapshotRequest | None:
        """Return the checkpoint that a spout must begin while no call of it is running."""
        begin, self._begin = self._begin, None
        return begin

    def run_due_work(self, now_ms: float) -> None:
        """Do the work due between two calls of user code: timeouts, commits, and the begin of a checkpoint."""
        task = self._task
        self.tick(now_ms)
        if self._guard is not None:
            self._guard.between_calls()
            if self._guard.violation is not None:
                task.errors.record_exception(self._guard.violation, "emit")
        if task.errors.failed is not None:
            return
        complete = self._participant.complete
        if complete > self.report.confirmed or (complete > self.reported_complete and not self.is_halted):
            try:
                self._complete(complete)
            except Exception as error:
                task.errors.record_exception(error, "on_checkpoint_complete")
            self._collector.route_pending()
        align = self.due()
        if align is not None:
            self.align(align)

    # A quiet point.

    def align(self, align: SnapshotRequest) -> None:
        """Take a quiet point."""
        task, output = self._task, self._output
        try:
            self.prepare(align)
            self._collector.route_all()
            output.flush_early(task.clock() * 1000)
            began = task.clock()
            barriers = self.take(align, began * 1000)
            snapshot_ms = 1000 * (task.clock() - began)
        except Exception as error:
            task.errors.record_exception(error, "pre_save")
            return
        output.append(barriers)
        task.telemetry.latency("__snapshot-time-ms", snapshot_ms)

    def prepare(self, align: SnapshotRequest) -> None:
        """Call user code before the snapshot; it may emit. Raises the exceptions of user code."""
        checkpoint = self._checkpoint(align.checkpoint)
        self._call("pre_save", str(align.checkpoint))
        if is_state_replaced(self._component, self._state.own):
            raise TypeError(
                f"{self._task.name} has assigned a new object to self.state, which would not be saved\n"
                "hint: change the existing mapping (self.state[...] = ..., self.state.update(...))"
            )
        with self._user_code("prepare"):
            self._tokens.prepare(checkpoint)

    def take(self, align: SnapshotRequest, now_ms: float) -> list[Frame]:
        """Take the snapshot and enter the quiet. Return the barriers to send after all other frames.

        Raises:
            CannotEncode: Some state cannot be encoded.
            StaleReference: User code has changed a value by a stale reference.
        """
        number, task, state, output = align.checkpoint, self._task, self._state, self._output
        state.check_references()
        with self._user_code("splits"):
            own, groups = state.take(number, align.turn)
        draft = StatePart(
            task.name, task.id, task.incarnation, self.generation, number, align.turn, 0, "", state.groups,
            tuple(self._tokens.unconfirmed),
        )  # fmt: skip
        snapshot = TaskSnapshot(draft, own, groups, self._codec)
        self._writing[number] = now_ms
        self.saved = number
        self._setup.write(snapshot)
        self._participant.aligned(number, now_ms)
        self._update_report()
        version, sent = output.plan.routing_version, output.sent_frames
        return [
            barrier_frame(task.id, each, version, Barrier(self.generation, number, align.turn, sent[each]))
            for each in self._downstream
        ]

    def on_part(self, part: StatePart) -> None:
        """Take note that a part is written."""
        if part.size:
            self._task.telemetry.count("__snapshot-bytes", part.size)
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
            task = self._task
            self._runs = self._runs or generation.incarnation(task_participant(task.id)) == task.incarnation

    def apply_command(self, command: CheckpointCommand) -> None:
        """Apply a command of the master. Old commands change nothing."""
        participant = self._participant
        if command.generation != self.generation or not self._runs:
            return
        participant.timeout_ms = command.timeout_ms
        participant.over(command.over)
        if self._begin is not None and self._begin.checkpoint <= command.over:
            self._begin = None
        if participant.completed(command.complete):
            self._state.completed(command.complete)
        if command.under:
            self._begin = participant.begin(command.under, command.turn) or self._begin
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

    def load_state(self) -> None:
        """Give the component its state. Raises the exceptions of user code."""
        component, state, restored = self._component, self._state, self._setup.restored
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
                    f"{self._task.name}: {len(state.gone)} removed tasks have left a self.state to merge\nhint: define "
                    "merge_state(states) or union_state(states), or use keyed state (self.keyed)"
                )
            self._call("merge_state", state.gone)

    def commit_restored(self) -> None:
        """Commit and abort the tokens of the restored checkpoint, once the component is initialized."""
        with self._user_code("commit"):
            self._tokens.restore(self._setup.restored)

    def _complete(self, complete: int) -> None:
        """Commit complete checkpoints and notify user code. Raises the exceptions of user code."""
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

    def _call(self, method: str, argument: Any) -> None:
        call = getattr(self._component, method, None)
        if call is not None:
            with self._user_code(method):
                call(argument)

    def _checkpoint(self, number: int) -> Checkpoint:
        task = self._task
        name = part_name(self.generation, number, task.id, task.incarnation).removesuffix(".part")
        return Checkpoint(number, self.generation, name)

    def _update_report(self) -> None:
        report = self._participant.report
        if report != self.report and not self.report.failed:
            self.report = report

    def check(self) -> None:
        """Assert every invariant."""
        self._participant.check()
        if self._state.by_key is not None:
            self._state.by_key.check()
        assert not self._runs or self.report.restored
