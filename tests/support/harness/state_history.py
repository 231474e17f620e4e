"""Random history of keyed state: changes, checkpoints, restores, rescaling, expiry and undone calls."""

from __future__ import annotations

import copy
import random
from typing import Any

from heron_instance.core.state.keyed_state import KeyedState
from heron_instance.core.state.snapshot import TaskSnapshot, read_part
from heron_instance.core.values_codec import ValuesCodec
from heron_runtime.model.checkpoints import (
    Manifest,
    StatePart,
    groups_of,
    initial_manifest,
    next_manifest,
    reading_plan,
)
from heron_runtime.model.keys import encode, group_of
from heron_runtime.model.plan import NO_PLAN
from heron_runtime.wire.checkpoint_formats import TASK_STATE
from topology_master.core.planner import initial_table, rebalance

KEYS: list[Any] = [*range(12), "a", "b", "ü", 0.5, 1.0, None, (1, "a"), b"a", float("nan")]


class History:
    """Tasks of one keyed component, and a plain dictionary by canonical key as reference."""

    def __init__(self, seed: int) -> None:
        self.draw = random.Random(seed)
        self.changeable = self.draw.choice([[], [[7]], [[7], ([7], 0)]])  # values that can be changed in place
        self.codec = ValuesCodec()
        self.files: dict[str, bytes] = {}
        self.truth: dict[bytes, Any] = {}
        self.ends: dict[bytes, float] = {}  # of entries with a time to live
        self.wall = self.now = 1000.0  # wall clock; time of the last advance
        self.at: dict[int, Any] = {0: ({}, {})}  # the reference state of each complete checkpoint
        self.manifest: Manifest = initial_manifest("id")
        self.tasks = [1, 2]
        self.table = initial_table(self.tasks)
        self.generation, self.number = 1, 0
        self.states = {task: self.empty(groups_of(self.table, task)) for task in self.tasks}

    def empty(self, groups: int) -> KeyedState:
        return KeyedState(groups, wall=lambda: self.wall)

    def owner(self, key: Any) -> KeyedState:
        return self.states[self.table[group_of(key)]]

    def change(self) -> None:
        key, do = self.draw.choice(KEYS), self.draw.random()
        state, canonical = self.owner(key), encode(key)
        if do < 0.2:
            seconds = self.draw.choice([1.0, 5.0, 5.0, 30.0])
            self.truth[canonical] = self.draw.choice([*self.changeable, self.draw.randint(0, 99)])
            state.put(key, copy.deepcopy(self.truth[canonical]), ttl=seconds)
            self.ends[canonical] = self.now + seconds
        elif do < 0.35:
            assert (canonical in self.truth) == (key in state)
            if key in state:
                del state[key], self.truth[canonical]
                self.ends.pop(canonical, None)
        elif do < 0.5:
            self.ends.pop(canonical, None)
            state[key] = self.truth[canonical] = self.draw.choice(
                [self.draw.randint(0, 99), "text", None, 1.5, (1, "a")]
            )
        elif do < 0.75 and self.changeable:
            items = state.setdefault(key, [])
            if isinstance(items, tuple) and isinstance(items[0], list):
                items[0].append(1)
                self.truth[canonical] = copy.deepcopy(items)
            elif isinstance(items, list):  # changed in place
                items.append(self.draw.randint(0, 9))
                self.truth[canonical] = copy.copy(items)
            else:
                state.put(key, [1])
                self.truth[canonical] = [1]
                self.ends.pop(canonical, None)
        else:
            assert state.peek(key, "none") == self.truth.get(canonical, "none")
            assert state.get(key, "none") == self.truth.get(canonical, "none")

    def undone_call(self) -> None:
        """Undo the changes of a call in every task, since all may be between calls."""
        before = copy.deepcopy((self.truth, self.ends))
        for state in self.states.values():
            state.begin()
        for _ in range(self.draw.randint(1, 4)):
            self.change()
        for state in self.states.values():
            state.undo()
        self.truth, self.ends = before

    def pass_time(self) -> None:
        """Advance the clocks, or set the wall clock back, which is ignored; entries end only between calls."""
        self.wall += self.draw.choice([0.5, 1.0, 4.0, 6.0, -2.0])
        if self.draw.random() < 0.3:
            return  # a call is running
        self.now = max(self.now, self.wall)
        for state in self.states.values():
            state.pass_time()
        self.forget_ended()

    def forget_ended(self) -> None:
        for canonical in [canonical for canonical, at in self.ends.items() if at <= self.now]:
            del self.truth[canonical], self.ends[canonical]

    def checkpoint(self, complete: bool, heard: bool) -> None:
        """Take a checkpoint of all tasks at one moment, as at a quiet point.

        Some tasks never learn that it is complete. They continue before it is written.
        """
        self.number += 1
        snapshots = [self._snapshot(task, state) for task, state in self.states.items()]
        then = copy.deepcopy((self.truth, self.ends))
        for _ in range(self.draw.randint(0, 3)):
            self.change()
        parts = [self._write(snapshot) for snapshot in snapshots]
        if not complete:
            return
        self.manifest = next_manifest(self.manifest, parts, NO_PLAN, {"count": self.table})
        self.at[self.number] = then
        for state in self.states.values():
            if heard or self.draw.random() < 0.5:
                state.completed(self.number)
            state.check()

    def _snapshot(self, task: int, state: KeyedState) -> TaskSnapshot:
        turn = self.manifest.turn + 1
        draft = StatePart("count", task, 9, self.generation, self.number, turn, 0, "", state.groups)
        return TaskSnapshot(draft, [("sum", task)], state.take(self.number, turn), self.codec)

    def _write(self, snapshot: TaskSnapshot) -> StatePart:
        part, pieces = snapshot.encode()
        self.files[part.name] = b"".join(pieces)
        assert part.size == len(self.files[part.name])
        return part

    def restore(self, tasks: list[int]) -> None:
        """Restore all tasks from the last complete checkpoint, with these tasks."""
        self.generation += 1
        if tasks != self.tasks:
            self.tasks, self.table = tasks, rebalance(self.table, tasks)
        self.states = {task: self.load(groups_of(self.table, task)) for task in tasks}
        self.truth, self.ends = copy.deepcopy(self.at[self.manifest.checkpoint])
        self.now = self.wall
        self.forget_ended()

    def load(self, groups: int) -> KeyedState:
        state = self.empty(groups)
        for part, wanted in reading_plan(self.manifest.layers.get("count", ()), groups):
            data = self.files[part.name]

            def read(offset: int, size: int, data: bytes = data) -> bytes:
                return data[offset : offset + size]

            state.load(b for b in read_part(part, read, wanted, self.codec) if b.group != TASK_STATE)
        state.pass_time()
        state.check()
        return state

    def check(self) -> None:
        """Check that the tasks hold the reference state, each key once."""
        found: dict[bytes, Any] = {}
        for state in self.states.values():
            for key in state:
                assert encode(key) not in found
                found[encode(key)] = state.peek(key)
        assert found == self.truth
        assert sum(map(len, self.states.values())) == len(found)


def run(seed: int, steps: int = 70) -> History:
    history = History(seed)
    for _ in range(steps):
        do = history.draw.random()
        if do < 0.66:
            history.change()
        elif do < 0.72:
            history.undone_call()
        elif do < 0.8:
            history.pass_time()
        elif do < 0.95:
            history.checkpoint(history.draw.random() < 0.7, history.draw.random() < 0.7)
        else:
            others = sorted(history.draw.sample(range(1, 6), history.draw.randint(1, 4)))
            history.restore(others if history.draw.random() < 0.5 else history.tasks)
            history.check()
        if do > 0.9:
            history.check()
    history.restore(history.tasks)
    history.check()
    # Files that the last manifest does not name may be deleted.
    history.files = {name: data for name, data in history.files.items() if name in history.manifest.files}
    history.restore([1, 2, 3])
    history.check()
    return history
