"""A task whose state is kept, in one generation: what its executor asks, and what it says to the master.

::

    loaded ──linked──▶ restored ──the plan names it──▶ runs ──▶ aligned: quiet ──resume, cancel──▶ runs

Theory of operation. The executor asks ``stands_still`` before it does anything, ``may_take`` before it takes a frame,
and hands barriers over; ``Participant`` decides. When a quiet point is reached the executor ends what it has in hand
and calls ``take``: user code puts its last word into its state, a two-phase sink prepares, the changes are taken,
and barriers for every downstream task leave behind everything that was sent before. They are encoded and written
elsewhere, while records are processed again (``on_part``). What is *complete* leads to commits, at the next step of
the executor.

Sources: Carbone et al. 2015, section 4; ``docs/decisions/checkpoints.md``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from heron_instance.core.outbox import Flush
from heron_instance.core.state.barriers import barrier_frame, barrier_of, channels
from heron_instance.core.state.kept import NOTHING_RESTORED, KeptState, Restored
from heron_instance.core.state.part_file import Snapshot
from heron_instance.core.state.participant import Align, Barrier, Participant
from heron_instance.core.state.tokens import Tokens
from heron_instance.core.user_code import UserCode
from heron_instance.core.values_codec import ValuesCodec
from heron_runtime.model.checkpoints import CheckpointWish, Part, TaskReport, part_name
from heron_runtime.model.plan import NO_CHECKPOINT, Phase, PhysicalPlan, task_place
from heron_runtime.wire.data import Frame
from heronry.api.component import bind_state, is_state_replaced
from heronry.api.state import Checkpoint

PartWriter = Callable[[Snapshot], None]


@dataclass
class StateSetup:
    """What a task is begun with in a generation. ``write`` has the file of a part written, elsewhere; what
    became of it is told by ``Stateful.on_part`` or ``on_part_failed``."""

    write: PartWriter
    timeout_ms: float
    restored: Restored = NOTHING_RESTORED


class Stateful:
    """Of one executor. Everything is called by the thread that drives it."""

    def __init__(
        self, plan: PhysicalPlan, task: int, incarnation: int, component: Any, user_code: UserCode, codec: ValuesCodec,
        setup: StateSetup, wall: Callable[[], float],
    ) -> None:  # fmt: skip
        self.generation = plan.generation.number
        self.kept = KeptState(plan, task, component, setup.restored, wall)
        self._task = task
        self._name = plan.component_of(task)
        self._incarnation = incarnation
        self._component = component
        self._user_code = user_code
        self._codec = codec
        self._setup = setup
        upstream, self._downstream = channels(plan, self._name)
        self._participant = Participant(self.generation, upstream, setup.timeout_ms)
        self._tokens = Tokens(component, self.generation)
        self._sent: Counter[int] = Counter()  # frames, by task, in this generation
        self._writing: dict[int, float] = {}  # checkpoint: since when
        self._begin: Align | None = None  # for a spout: as soon as its call has returned
        self._runs = False
        self.saved = self.told_complete = setup.restored.checkpoint  # the newest snapshot; what user code was told
        self.snapshot_ms = 0.0  # the last one
        self.written_bytes = 0  # of snapshots, to be counted by who reads it
        self.report = self._participant.report

    # What the executor asks.

    @property
    def stands_still(self) -> bool:
        """True while no frame is processed, no tick fires and no spout is asked."""
        return not self._runs or self._participant.quiet

    def may_take(self, source: int) -> bool:
        """Whether a frame of this task may be taken now; if so it counts as taken."""
        participant = self._participant
        if not self._runs or not participant.may_take(source):
            return False
        if participant.declined > self.report.declined:
            self._told()
        participant.taken(source)
        return True

    def barrier(self, frame: Frame) -> Align | None:
        """A barrier is next in data-in. Raises NoBarrier."""
        return self._told(self._participant.barrier(frame.source_task, barrier_of(frame)))

    def due(self) -> Align | None:
        """For a spout: the checkpoint to begin, once no call of it is under way."""
        begin, self._begin = self._begin, None
        return begin

    def flushed(self, flush: Flush) -> None:
        """These frames are on their way."""
        for frame in flush.frames:
            self._sent[frame.destination_task] += 1

    # A quiet point.

    def prepare(self, align: Align) -> None:
        """User code's last word before the snapshot; it may emit. Raises what it raises."""
        checkpoint = self._checkpoint(align.checkpoint)
        self._call("pre_save", str(align.checkpoint))
        if is_state_replaced(self._component, self.kept.own):
            raise TypeError(
                f"{self._name} has put another object into self.state, which would not be kept: change the mapping "
                "that is there (self.state[...] = ..., self.state.update(...))"
            )
        with self._user_code("prepare"):
            self._tokens.prepare(checkpoint)

    def take(self, align: Align, routing_version: int, now_ms: float, clock: Callable[[], float]) -> list[Frame]:
        """Take the snapshot and fall silent; returns the barriers, to be sent behind all that was. Raises
        CannotEncode, KeptReference."""
        began = clock()
        number = align.checkpoint
        self.kept.check_references()
        with self._user_code("splits"):
            own, groups = self.kept.take(number, align.turn)
        draft = Part(
            self._name, self._task, self._incarnation, self.generation, number, align.turn, 0, "", self.kept.groups,
            tuple(self._tokens.unconfirmed),
        )  # fmt: skip
        snapshot = Snapshot(draft, own, groups, self._codec)
        self._writing[number] = now_ms
        self.saved = number
        self._setup.write(snapshot)
        self._participant.aligned(number, now_ms)
        self._told()
        self.snapshot_ms = 1000 * (clock() - began)
        return [
            barrier_frame(
                self._task, task, routing_version, Barrier(self.generation, number, align.turn, self._sent[task])
            )
            for task in self._downstream
        ]

    def on_part(self, part: Part) -> None:
        """It is on disk."""
        self.written_bytes += part.size
        if self._writing.pop(part.checkpoint, None) is not None:
            self._participant.stored(part)
            self._told()

    def on_part_failed(self, checkpoint: int, why: str) -> None:
        """It is not, and will not be."""
        self._writing.pop(checkpoint, None)
        self._participant.decline(checkpoint, why)
        self._told()

    # What the master says.

    def follow(self, plan: PhysicalPlan) -> None:
        """A plan of this generation."""
        generation = plan.generation
        if generation.number == self.generation and generation.phase is Phase.RUNNING and self.report.restored:
            self._runs = self._runs or generation.incarnation(task_place(self._task)) == self._incarnation

    def hear(self, wish: CheckpointWish) -> None:
        """What the master wants; old words change nothing."""
        participant = self._participant
        if wish.generation != self.generation or not self._runs:
            return
        participant.timeout_ms = wish.timeout_ms
        participant.over(wish.over)
        if self._begin is not None and self._begin.checkpoint <= wish.over:
            self._begin = None
        if participant.completed(wish.complete):
            self.kept.completed(wish.complete)
        if wish.under:
            self._begin = participant.begin(wish.under, wish.turn) or self._begin
        self._told()

    def linked(self) -> None:
        """The data connection of this generation is open."""
        self._participant.restored()
        self._told()

    def unlinked(self) -> None:
        """It has ended."""
        self._participant.disconnected()
        self._told()

    def failed(self, why: str) -> TaskReport:
        """User code or a load has failed for good: what the master is to hear."""
        report = self._participant.report
        self._runs = False
        self.report = TaskReport(self.generation, report.restored, declined=report.declined, failed=why or "?")
        return self.report

    def tick(self, now_ms: float) -> None:
        """Time passes."""
        if not self._writing and not self._participant.quiet:
            return
        self._participant.tick(now_ms)
        for number, since_ms in list(self._writing.items()):
            if now_ms - since_ms > self._participant.timeout_ms:
                seconds = (now_ms - since_ms) / 1000
                self._participant.decline(number, f"its part was not written within {seconds:.0f} s")
        self._told()

    def deadline_ms(self) -> float | None:
        """Return when ``tick`` is due at the latest. What is declined has no deadline: only the master can end it."""
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
        """Give the component its state, and settle what was prepared before. Raises what user code raises."""
        component, kept, restored = self._component, self.kept, self._setup.restored
        bind_state(component, kept.keyed, kept.own)
        if restored.checkpoint != NO_CHECKPOINT:
            self._call("pre_restore", str(restored.checkpoint))
        self._call("init_state", kept.own)
        if hasattr(component, "union_state"):
            states, kept.states, kept.gone = kept.states, [], []
            if restored.checkpoint != NO_CHECKPOINT:
                self._call("union_state", states)
        elif kept.gone:
            if getattr(component, "merge_state", None) is None:
                raise TypeError(
                    f"{self._name}: {len(kept.gone)} of its tasks have gone and leave a self.state behind: define "
                    "merge_state(states) or union_state(states), or keep it by key (self.keyed)"
                )
            self._call("merge_state", kept.gone)

    def settle(self) -> None:
        """Once the component is initialised: commit what the checkpoint names, abort what it does not."""
        with self._user_code("commit"):
            self._tokens.restore(self._setup.restored)

    def complete(self) -> None:
        """Commit what has become complete, tell user code of it. Raises what user code raises."""
        complete = self._participant.complete
        if complete > self.report.confirmed:
            with self._user_code("commit"):
                self._tokens.commit(complete)
                self._tokens.sweep(())
            self._participant.confirmed(complete)
            self._told()
        if complete > self.told_complete and not self.stands_still:
            self.told_complete = complete
            self._call("post_save", str(complete))
            self._call("on_checkpoint_complete", complete)

    @property
    def has_completed(self) -> bool:
        """True if ``complete`` has something to do."""
        complete = self._participant.complete
        return complete > self.report.confirmed or (complete > self.told_complete and not self.stands_still)

    def _call(self, method: str, argument: Any) -> None:
        call = getattr(self._component, method, None)
        if call is not None:
            with self._user_code(method):
                call(argument)

    def _checkpoint(self, number: int) -> Checkpoint:
        name = part_name(self.generation, number, self._task, self._incarnation).removesuffix(".part")
        return Checkpoint(number, self.generation, name)

    def _told(self, result: Align | None = None) -> Align | None:
        report = self._participant.report
        if report != self.report and not self.report.failed:
            self.report = report
        return result

    def check(self) -> None:
        """Assert every invariant."""
        self._participant.check()
        if self.kept.by_key is not None:
            self.kept.by_key.check()
        assert not self._runs or self.report.restored
