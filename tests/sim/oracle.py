"""Record of all emits, arrivals, acks and fails, written by user code itself.

Each emitted tuple carries a number (``uid``), so the oracle knows the whole tuple tree without the cores. For a root it
keeps ``outstanding``: the copies anchored to it, directly or through others, that user code has not acked. The tree is
complete exactly when that is zero; a core that reports this earlier, twice or never breaks an invariant.

Invariants checked here, at the moment of the event: a copy arrives once, at a task that its grouping allows; a
destination gets the emits of one source in order; equal keys go to one task under one routing version; a root is
settled once, in the life that opened it; an ack occurs only for a complete tree; a fail has a true reason.
"""

from __future__ import annotations

from collections.abc import Iterable

from heron_runtime.model.dataflow import FailKind, FailReason
from heron_runtime.model.plan import PhysicalPlan
from heron_runtime.model.topology import Edge, GroupingKind, TopologyDefinition

from .simulation import Simulation, Violation

ONE_OF = (
    GroupingKind.SHUFFLE, GroupingKind.FIELDS, GroupingKind.PARTIAL_KEY, GroupingKind.GLOBAL,
    GroupingKind.LOCAL_OR_SHUFFLE, GroupingKind.NONE,
)  # fmt: skip
CHOICES = {GroupingKind.FIELDS: 1, GroupingKind.PARTIAL_KEY: 2}  # how many tasks a key may reach


class Root:
    """Spout tuple with an id."""

    __slots__ = (
        "done_ms", "emitted_ms", "failed_by_user", "life", "outstanding", "settled", "story", "task", "uid"
    )  # fmt: skip

    def __init__(self, uid: int, task: int, life: int, now_ms: float) -> None:
        self.uid = uid
        self.task = task
        self.life = life
        self.emitted_ms = now_ms
        self.outstanding = 0
        self.failed_by_user: set[FailKind] = set()
        self.settled = ""
        self.done_ms: float | None = None  # when the last copy was acked
        self.story: list[str] = []


class Emission:
    """Emit and its copies."""

    __slots__ = ("copies", "direct", "key", "life", "number", "roots", "stream", "task", "tasks_seen", "uid")

    def __init__(self, uid: int, task: int, life: int, number: int, stream: tuple[str, str], key: str) -> None:
        self.uid = uid
        self.task = task
        self.life = life
        self.number = number
        self.stream = stream
        self.key = key
        self.direct: int | None = None
        self.roots: tuple[Root, ...] = ()
        self.copies = 0
        self.tasks_seen: dict[int, None] = {}


class Copy:
    """Copy of an emission at one task, held by user code."""

    __slots__ = ("emission", "settled", "task")

    def __init__(self, emission: Emission, task: int) -> None:
        self.emission = emission
        self.task = task
        self.settled = False


class Oracle:
    """Oracle of one run."""

    def __init__(self, world: Simulation, topology: TopologyDefinition, tasks_of: dict[str, tuple[int, ...]]) -> None:
        self.world = world
        self.roots: dict[int, Root] = {}
        self.emissions: dict[int, Emission] = {}
        self.acked = self.failed = self.abandoned = 0
        self.moves = False  # a task has moved without waiting for tuples in flight
        self.stopped_tasks: set[int] = set()  # whose executors have been stopped in order at least once
        self._tasks_of = tasks_of
        self._edges: dict[tuple[str, str], list[Edge]] = {}
        for edge in topology.edges():
            self._edges.setdefault((edge.source, edge.stream), []).append(edge)
        self._component_of = {task: name for name, tasks in tasks_of.items() for task in tasks}
        self._numbers = 0
        self._last: dict[tuple[int, int, int, int], int] = {}  # (source, life, destination, life) to emission number
        self._owners: dict[tuple[str, str, str, str, int], set[int]] = {}
        self.routing_version: dict[int, int] = {}  # by task, of the plan it emits under

    # Emits.

    def emit(
        self,
        task: int,
        life: int,
        stream: tuple[str, str],
        key: str,
        anchors: Iterable[Copy] = (),
        direct: int | None = None,
    ) -> Emission:
        """Record an emit of user code; the uid becomes part of the values."""
        self._numbers += 1
        emission = Emission(self._numbers, task, life, self._numbers, stream, key)
        emission.direct = direct
        emission.copies = sum(self._copies(edge, direct) for edge in self._edges.get(stream, ()))
        roots: dict[int, Root] = {}
        for copy in anchors:
            for root in copy.emission.roots:
                roots[root.uid] = root
        emission.roots = tuple(roots.values())
        self.emissions[emission.uid] = emission
        for root in emission.roots:
            root.outstanding += emission.copies
            self.tell(root, f"task {task} emits {emission.uid} to {'/'.join(stream)}: {emission.copies} copies")
        return emission

    def open_root(self, emission: Emission) -> Root:
        """Open a root for the emission of a spout with an id."""
        root = self.roots[emission.uid] = Root(emission.uid, emission.task, emission.life, self.world.now_ms)
        root.outstanding = emission.copies
        emission.roots = (root,)
        self.tell(root, f"spout task {emission.task} emits it: {emission.copies} copies")
        return root

    def _copies(self, edge: Edge, direct: int | None) -> int:
        tasks = self._tasks_of[edge.destination]
        if edge.grouping.kind is GroupingKind.ALL:
            return len(tasks)
        if edge.grouping.kind is GroupingKind.DIRECT:
            return int(direct in tasks)
        return 1

    # Arrivals.

    def received(self, task: int, life: int, source: int | None, uid: int) -> Copy:
        """Record that user code has received a tuple."""
        emission = self.emissions.get(uid)
        if emission is None:
            raise Violation(f"task {task} received tuple {uid}, which nobody emitted")
        if source != emission.task:
            self._broken(emission, f"tuple {uid} of task {emission.task} arrives as one of task {source}")
        if task in emission.tasks_seen:
            self._broken(emission, f"task {task} received tuple {uid} twice")
        component = self._component_of[task]
        edge = next((e for e in self._edges.get(emission.stream, ()) if e.destination == component), None)
        if edge is None:
            self._broken(emission, f"task {task} received tuple {uid} of a stream it does not read")
        else:
            self._check_grouping(emission, edge, task)
        emission.tasks_seen[task] = None
        pair = (emission.task, emission.life, task, life)
        if self._last.get(pair, 0) >= emission.number:
            self._broken(emission, f"task {task} received tuple {uid} of task {emission.task} out of order")
        self._last[pair] = emission.number
        for root in emission.roots:
            self.tell(root, f"task {task} takes {uid}")
        return Copy(emission, task)

    def _check_grouping(self, emission: Emission, edge: Edge, task: int) -> None:
        kind, uid = edge.grouping.kind, emission.uid
        tasks = self._tasks_of[edge.destination]
        if kind in ONE_OF and any(other in emission.tasks_seen for other in tasks):
            self._broken(emission, f"tuple {uid} reached two tasks of {edge.destination}")
        if kind is GroupingKind.DIRECT and task != emission.direct:
            self._broken(emission, f"tuple {uid} for task {emission.direct} reached task {task}")
        if kind is GroupingKind.GLOBAL and task != tasks[0]:
            self._broken(emission, f"tuple {uid} of a global grouping reached task {task}")
        if kind in CHOICES:
            place = (*emission.stream, edge.destination, emission.key, self.routing_version.get(emission.task, 0))
            owners = self._owners.setdefault(place, set())
            owners.add(task)
            if len(owners) > CHOICES[kind]:
                self._broken(emission, f"key {emission.key!r} of a {kind} grouping reached tasks {sorted(owners)}")

    def acked_copy(self, copy: Copy) -> None:
        """Record an ack of user code."""
        if copy.settled:
            return
        copy.settled = True
        for root in copy.emission.roots:
            root.outstanding -= 1
            if root.outstanding == 0:
                root.done_ms = self.world.now_ms
            self.tell(root, f"task {copy.task} acks {copy.emission.uid}; {root.outstanding} outstanding")

    def failed_copy(self, copy: Copy, kind: FailKind) -> None:
        """Record that user code has failed the copy or raised."""
        if copy.settled:
            return
        copy.settled = True
        for root in copy.emission.roots:
            root.failed_by_user.add(kind)
            self.tell(root, f"task {copy.task} fails {copy.emission.uid} ({kind})")

    # Notifications of the spout.

    def spout_acked(self, uid: int, task: int, life: int) -> None:
        """Check a call of ``Spout.ack``."""
        root = self._settle(uid, task, life, "acked")
        if root.outstanding or root.failed_by_user:
            why = "failed by user code" if root.failed_by_user else f"{root.outstanding} copies are not acked"
            raise Violation(f"root {uid} is acked and its tree did not finish: {why}", root.story)
        self.acked += 1

    def spout_failed(self, uid: int, task: int, life: int, reason: FailReason) -> Root:
        """Check a call of ``Spout.fail``."""
        root = self._settle(uid, task, life, f"failed ({reason.kind})")
        stopped = reason.task in self.stopped_tasks and "stopped before it processed" in reason.message
        by_user = reason.kind in (FailKind.FAILED, FailKind.EXCEPTION)
        if by_user and reason.kind not in root.failed_by_user and not stopped:
            raise Violation(f"root {uid} fails with {reason.kind}, and nobody failed it: {reason}", root.story)
        if reason.kind is FailKind.MOVED and not self.moves:
            raise Violation(f"root {uid} fails as moved, and no task has moved", root.story)
        self.failed += 1
        return root

    def _settle(self, uid: int, task: int, life: int, how: str) -> Root:
        root = self.roots.get(uid)
        if root is None:
            raise Violation(f"task {task} is told that {uid} is {how}; it is no root")
        self.tell(root, f"the spout is told: {how}")
        if root.task != task or root.life != life:
            owner = f"task {root.task} life {root.life}"
            raise Violation(f"root {uid} of {owner} is {how} at task {task} life {life}", root.story)
        if root.settled:
            raise Violation(f"root {uid} is settled twice: {root.settled}, then {how}", root.story)
        root.settled = how
        return root

    def spout_died(self, task: int, life: int) -> list[int]:
        """Return the roots of this life, which will not be settled."""
        found = []
        for root in self.roots.values():
            if root.task == task and root.life == life and not root.settled:
                root.settled = "abandoned"
                self.abandoned += 1
                self.tell(root, "the spout has died")
                found.append(root.uid)
        return found

    def open_roots(self) -> list[Root]:
        """Return the roots that are not settled."""
        return [root for root in self.roots.values() if not root.settled]

    def tell(self, root: Root, text: str) -> None:
        """Add a line to a root's story."""
        root.story.append(f"{self.world.now_ms:10.3f} {text}")

    def _broken(self, emission: Emission, law: str) -> None:
        raise Violation(law, emission.roots[0].story if emission.roots else [])

    def note_plan(self, task: int, plan: PhysicalPlan) -> None:
        """Record the plan under which a task emits."""
        self.routing_version[task] = plan.routing_version
