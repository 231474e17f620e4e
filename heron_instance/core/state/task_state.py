"""State of a task: keyed state, the mapping of the task alone, and the split positions of a spout.

All of it is one file in a checkpoint (``snapshot.py``): key groups in blocks of their own, the rest in the task's
block, whose rows state their kind. The plan determines which of the three a component has: keyed state needs inputs
grouped by fields, and positions belong to spouts that list splits.

A *split* is a part of a source that a single task reads: a file, a partition, a shard (Flink's FLIP-27). A spout lists
its splits by name, with a number if they have one, and keeps a position for each split it owns in ``self.keyed``. The
owner of a split follows from its number (or a hash of its name) and the tasks of the component; so splits find their
owner again after a restore, after a rescale, and when the list grows.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from heron_instance.core.state.keyed_state import KeyedState
from heron_instance.core.state.snapshot import KeyGroupRows, Row, TaskSnapshot
from heron_runtime.model.checkpoints import AdoptionMode, CommitToken, groups_of
from heron_runtime.model.keys import group_of
from heron_runtime.model.plan import NO_CHECKPOINT, PhysicalPlan
from heron_runtime.model.settings import Keys, setting
from heron_runtime.model.topology import GroupingKind
from heronry.api.component import Spout
from heronry.api.dead_letters import stream_of

Listed = str | tuple[str, int]  # name of a split, or its name and number
Listing = Callable[[], Iterable[Listed]]
_ABSENT = object()
OF_TASK, OF_SPLIT = "state", "split"  # kinds of rows in the task's block


class SplitNotOwned(LookupError):
    """Split that another task of the component reads."""


class SplitPositions(MutableMapping[str, Any]):
    """Mapping ``self.keyed`` of a spout: split to position, for the splits that this task owns.

    Args:
        task: This task.
        tasks: Tasks of its component.
        listing: The spout's ``splits``.

    Raises:
        SplitNotOwned: A position of another task's split is written.
    """

    def __init__(self, task: int, tasks: Sequence[int], listing: Listing) -> None:
        self._task = task
        self._tasks = tuple(sorted(tasks))
        self._listing = listing
        self._listed: dict[str, int | None] = {}
        self._values: dict[str, Any] = {}  # as restored, with those of other tasks: owners are not known yet

    def owned(self) -> list[str]:
        """Ask the spout for its splits. Return those that this task reads now, in the order listed."""
        self._listed = dict(_named(listed) for listed in self._listing())
        return [split for split in self._listed if self.owns(split)]

    def owns(self, split: str) -> bool:
        """Return True if this task reads the split."""
        number = self._listed.get(split)
        place = group_of(split) if number is None else number
        return self._tasks[place % len(self._tasks)] == self._task

    def __getitem__(self, split: str) -> Any:
        return self._values[split]

    def __setitem__(self, split: str, position: Any) -> None:
        if not self.owns(split):
            raise SplitNotOwned(
                f"split {split!r} is read by another task of this spout\nhint: read self.owned_splits() only"
            )
        self._values[split] = position

    def __delitem__(self, split: str) -> None:
        del self._values[split]

    def __iter__(self) -> Iterator[str]:
        return iter([split for split in self._values if self.owns(split)])

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def taken(self) -> list[tuple[str, Any]]:
        """Return the positions for a checkpoint: of splits that are owned and still listed."""
        return [(split, self._values[split]) for split in self.owned() if split in self._values]

    def load(self, positions: Iterable[tuple[str, Any]]) -> None:
        """Load positions of any task of the component."""
        self._values.update(positions)


def _named(listed: Listed) -> tuple[str, int | None]:
    return (listed, None) if isinstance(listed, str) else (str(listed[0]), int(listed[1]))


class UndoableMapping(MutableMapping[Any, Any]):
    """Mapping whose changes since ``begin`` can be undone, including changes in place.

    It is ``self.state`` of a bolt with dead letters. A reader gets a copy of the value, which replaces it. References
    must not outlive the call that read them.
    """

    def __init__(self) -> None:
        self._values: dict[Any, Any] = {}
        self._before: dict[Any, Any] | None = None

    def __getitem__(self, key: Any) -> Any:
        value = self._values[key]
        if self._before is not None and key not in self._before:
            self._before[key] = value
            value = self._values[key] = copy.deepcopy(value)
        return value

    def __setitem__(self, key: Any, value: Any) -> None:
        self._remember(key)
        self._values[key] = value

    def __delitem__(self, key: Any) -> None:
        self._remember(key)
        del self._values[key]

    def __contains__(self, key: object) -> bool:
        return key in self._values

    def __iter__(self) -> Iterator[Any]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __repr__(self) -> str:
        return repr(self._values)

    def begin(self) -> None:
        """Begin to record changes for ``undo``."""
        self._before = {}

    def keep(self) -> None:
        """Keep the changes since ``begin``."""
        self._before = None

    def undo(self) -> None:
        """Undo the changes since ``begin``."""
        before, self._before = self._before or {}, None
        for key, value in before.items():
            if value is _ABSENT:
                self._values.pop(key, None)
            else:
                self._values[key] = value

    def _remember(self, key: Any) -> None:
        if self._before is not None and key not in self._before:
            self._before[key] = self._values.get(key, _ABSENT)


@dataclass(frozen=True)
class RestoredState:
    """State with which a task begins a generation.

    Attributes:
        checkpoint: The restored checkpoint.
        blocks: Blocks of the key groups that it owns now, oldest first.
        own: Rows of the task block, by task that the component had.
        tokens: Tokens that this task must commit.
        known_tokens: Names of all tokens of the checkpoint.
        adopted: How the checkpoint was adopted from another topology, if it was.
    """

    checkpoint: int = NO_CHECKPOINT
    blocks: Iterable[KeyGroupRows] = ()
    own: Mapping[int, list[Row]] = field(default_factory=dict)
    tokens: tuple[CommitToken, ...] = ()
    known_tokens: frozenset[str] = frozenset()
    adopted: AdoptionMode = AdoptionMode.NO


INITIAL_STATE = RestoredState()


class UnclaimedState(TypeError):
    """State of a checkpoint that the component does not define a use for."""


class TaskState:
    """State of one task. ``wall`` gives seconds since 1970.

    ``keyed`` is None for a bolt without inputs grouped by fields, and for a spout without splits.
    """

    def __init__(
        self, plan: PhysicalPlan, task: int, component: Any, restored: RestoredState, wall: Callable[[], float]
    ) -> None:
        name = plan.component_of(task)
        self.groups = owned_groups(plan, task)
        self.own: MutableMapping[Any, Any] = UndoableMapping() if stream_of(type(component)) else {}
        self.states: list[dict[Any, Any]] = []  # of all tasks the component had, for ``union_state``
        self.gone: list[dict[Any, Any]] = []  # of removed tasks, for the first task to merge
        tasks = plan.tasks_of(name)
        self.by_key: KeyedState | None = None
        self.positions: SplitPositions | None = None
        self._checked = False
        fields = key_widths(plan, name)
        if plan.is_spout(task):
            if getattr(type(component), "splits", Spout.splits) is not Spout.splits:
                self.positions = SplitPositions(task, tasks, component.splits)
        elif fields:
            self.by_key = KeyedState(self.groups, min(fields), f"{name}, task {task}", wall)
            self.by_key.load(restored.blocks)
            self._checked = setting(plan.topology.config, Keys.TOPOLOGY_STATEFUL_CHECK_REFERENCES)
            self.check_references()
        for owner, rows in sorted(restored.own.items()):
            state = {key: value for (kind, key), value in rows if kind == OF_TASK}
            positions = [(key, value) for (kind, key), value in rows if kind == OF_SPLIT]
            if self.positions is not None:
                self.positions.load(positions)
            elif positions and restored.adopted is not AdoptionMode.IN_PART:
                raise UnclaimedState(
                    f"{name}: the checkpoint holds split positions (for example {positions[0][0]!r:.80}), but splits() "
                    "is not defined\nhint: define splits(), or submit with --allow-dropped-state"
                )
            if hasattr(component, "union_state"):
                self.states.append(dict(state))
            if owner == task:
                self.own.update(state)
            elif state and owner not in tasks and task == min(tasks):
                self.gone.append(state)
        self._undoable = [s for s in (self.by_key, self.own) if isinstance(s, KeyedState | UndoableMapping)]

    @property
    def keyed(self) -> KeyedState | SplitPositions | None:
        """The mapping that the component sees as ``self.keyed``."""
        return self.by_key if self.positions is None else self.positions

    def check_references(self) -> None:
        """Check for stale references before a snapshot, if the setting is on. Raises StaleReference."""
        if self._checked and self.by_key is not None:
            self.by_key.check_references()

    def take(self, checkpoint: int, turn: int) -> tuple[list[Row], Iterable[KeyGroupRows]]:
        """Return the content of a checkpoint: rows of the task's block, and blocks of key groups."""
        rows: list[Row] = [((OF_TASK, key), value) for key, value in self.own.items()]
        if self.positions is not None:
            rows += [((OF_SPLIT, split), position) for split, position in self.positions.taken()]
        return rows, () if self.by_key is None else self.by_key.take(checkpoint, turn)

    def pass_time(self) -> None:
        """Remove entries that have ended. Called between two calls of user code, and before the first."""
        if self.by_key is not None:
            self.by_key.pass_time()

    # Undo of the changes of a failed record. Where calls can be undone, ``own`` is an UndoableMapping.

    def begin(self) -> None:
        """Begin to record changes for ``undo``."""
        for state in self._undoable:
            state.begin()

    def keep(self) -> None:
        """Keep the changes since ``begin``."""
        for state in self._undoable:
            state.keep()

    def undo(self) -> None:
        """Undo the changes since ``begin``."""
        for state in self._undoable:
            state.undo()

    def completed(self, checkpoint: int) -> None:
        """Take note that a checkpoint is complete."""
        if self.by_key is not None:
            self.by_key.completed(checkpoint)


def owned_groups(plan: PhysicalPlan, task: int) -> int:
    """Return the bit set of key groups that a task owns; 0 for a component without keyed inputs."""
    name = plan.component_of(task)
    return next((groups_of(table.tasks, task) for table in plan.key_groups if table.component == name), 0)


def key_widths(plan: PhysicalPlan, component: str) -> set[int]:
    """Return the numbers of fields of the keys by which a component's inputs are grouped."""
    inputs = plan.topology.component(component).inputs
    return {len(source.grouping.fields) for source in inputs if source.grouping.kind is GroupingKind.FIELDS}


@dataclass
class StateSetup:
    """State with which an executor is made, and the writer of its snapshots.

    ``write`` lets the file of a part be written elsewhere; ``TaskCheckpointer.on_part`` or ``on_part_failed`` gets the
    result.
    """

    write: Callable[[TaskSnapshot], None]
    timeout_ms: float
    restored: RestoredState = INITIAL_STATE
