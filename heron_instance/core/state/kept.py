"""What of a task is kept: the state by key, the state of the task alone, the positions of a spout.

All of it is one file in a checkpoint (``part_file.py``): key groups in blocks of their own, the rest in the task's
block, whose rows say of which kind they are. Which of the three a component has follows from the plan: state by key
needs inputs grouped by fields, positions belong to spouts that list splits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, MutableMapping
from dataclasses import dataclass, field
from typing import Any

from heron_instance.core.state.keyed import KeyedState
from heron_instance.core.state.splits import Positions
from heron_instance.core.state.taken import GroupRows, Row
from heron_instance.core.state.undoable import UndoableMapping
from heron_runtime.model.checkpoints import Adopted, Token, groups_of
from heron_runtime.model.plan import NO_CHECKPOINT, PhysicalPlan
from heron_runtime.model.settings import Keys, setting
from heron_runtime.model.topology import GroupingKind
from heronry.api.component import Spout
from heronry.api.dead_letters import stream_of

OF_TASK, OF_SPLIT = "state", "split"  # kinds of rows in the task's block


@dataclass(frozen=True)
class Restored:
    """What a task begins a generation with. ``blocks`` are those of the key groups it owns now, oldest first.

    ``own``: by task, the rows of the task block of each task the component had. ``tokens``: what this task has to
    commit; ``known_tokens``: the names of all that the checkpoint knows of, whoever has prepared them.
    """

    checkpoint: int = NO_CHECKPOINT
    blocks: Iterable[GroupRows] = ()
    own: Mapping[int, list[Row]] = field(default_factory=dict)
    tokens: tuple[Token, ...] = ()
    known_tokens: frozenset[str] = frozenset()
    adopted: Adopted = Adopted.NO


NOTHING_RESTORED = Restored()


class NoPlace(TypeError):
    """State of a checkpoint that the component has no place for."""


class KeptState:
    """Of one task. ``keyed`` is None for a bolt without inputs grouped by fields, and for a spout without splits.
    ``wall`` gives seconds since 1970."""

    def __init__(
        self, plan: PhysicalPlan, task: int, component: Any, restored: Restored, wall: Callable[[], float]
    ) -> None:
        name = plan.component_of(task)
        self.groups = owned_groups(plan, task)
        self.own: MutableMapping[Any, Any] = UndoableMapping() if stream_of(type(component)) else {}
        self.states: list[dict[Any, Any]] = []  # of all tasks the component had, where they are asked for
        self.gone: list[dict[Any, Any]] = []  # of tasks that the plan has no longer, for the first one to merge
        tasks = plan.tasks_of(name)
        self.by_key: KeyedState | None = None
        self.positions: Positions | None = None
        self._checked = False
        fields = key_widths(plan, name)
        if plan.is_spout(task):
            if getattr(type(component), "splits", Spout.splits) is not Spout.splits:
                self.positions = Positions(task, tasks, component.splits)
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
            elif positions and restored.adopted is not Adopted.IN_PART:
                raise NoPlace(
                    f"{name} had positions of splits, as of {positions[0][0]!r:.80}, and lists none now: define "
                    "splits(), or submit it with --allow-dropped-state"
                )
            if hasattr(component, "union_state"):
                self.states.append(dict(state))
            if owner == task:
                self.own.update(state)
            elif state and owner not in tasks and task == min(tasks):
                self.gone.append(state)
        self._undoable = [s for s in (self.by_key, self.own) if isinstance(s, KeyedState | UndoableMapping)]

    @property
    def keyed(self) -> KeyedState | Positions | None:
        """What the component sees as ``self.keyed``."""
        return self.by_key if self.positions is None else self.positions

    def check_references(self) -> None:
        """Where it is asked for, before a snapshot. Raises KeptReference."""
        if self._checked and self.by_key is not None:
            self.by_key.check_references()

    def take(self, checkpoint: int, turn: int) -> tuple[list[Row], Iterable[GroupRows]]:
        """What a checkpoint holds: the rows of the task's block, the blocks of key groups."""
        rows: list[Row] = [((OF_TASK, key), value) for key, value in self.own.items()]
        if self.positions is not None:
            rows += [((OF_SPLIT, split), position) for split, position in self.positions.taken()]
        return rows, () if self.by_key is None else self.by_key.take(checkpoint, turn)

    def pass_time(self) -> None:
        """Between two calls of user code, and before the first: what has a time to live ends when it is over."""
        if self.by_key is not None:
            self.by_key.pass_time()

    # A record that fails takes nothing with it. Where calls are undone, ``own`` is undoable.

    def begin(self) -> None:
        """From here on changes can be undone."""
        for state in self._undoable:
            state.begin()

    def keep(self) -> None:
        """What has changed since ``begin`` stays."""
        for state in self._undoable:
            state.keep()

    def undo(self) -> None:
        """Everything is as it was at ``begin``."""
        for state in self._undoable:
            state.undo()

    def completed(self, checkpoint: int) -> None:
        """This checkpoint is complete."""
        if self.by_key is not None:
            self.by_key.completed(checkpoint)


def owned_groups(plan: PhysicalPlan, task: int) -> int:
    """The set of key groups that the plan gives to a task; empty for one whose component is not grouped by keys."""
    name = plan.component_of(task)
    return next((groups_of(table.tasks, task) for table in plan.key_groups if table.component == name), 0)


def key_widths(plan: PhysicalPlan, component: str) -> set[int]:
    """Of how many fields the keys of a component's inputs grouped by fields consist."""
    inputs = plan.topology.component(component).inputs
    return {len(source.grouping.fields) for source in inputs if source.grouping.kind is GroupingKind.FIELDS}
