"""Limits of a task: wrapping sequence numbers, a full data-out, and the tasks of a custom grouping."""

from __future__ import annotations

import itertools
from typing import Any

from heron_instance.core.groupings import UserGrouping
from heron_runtime.model.ids import SEQUENCE_MASK, root_base
from heron_runtime.model.topology import GroupingKind, GroupingSpec
from heronry.api.component import BasicBolt, Spout
from stream_manager.core.ack_tracker import AckTracker, column
from tests.support.harness.executors import SHUFFLE, ExecutorHarness, Part
from tests.support.harness.single_spout import SingleSpout


def one_by_one(spout: Any) -> None:
    """Emit five tuples in a call, each routed separately."""
    for _ in range(5):
        spout.emit([spout.payload], tup_id=spout.n, need_task_ids=True)
        spout.n += 1


def test_inits_are_cut_where_the_sequence_wraps() -> None:
    """Each root is in an init before a copy leaves (``Alone.step`` checks), and tracker and table settle it once."""
    for ahead, ways in itertools.product((1, 3, 7), ({"each": 5}, {"next_tuple": one_by_one})):
        alone, tracker = SingleSpout({"topology.max.spout.pending": 20}, **ways), AckTracker(1, 30_000)
        collector = alone.executor.collector
        tracker.begin(5)
        collector._sequence = SEQUENCE_MASK + 1 - ahead
        keys: dict[int, int] = {}
        inits: list[Any] = []
        for _ in range(10):
            for flush in alone.step(6).flushes:
                inits += flush.inits
                for frame in flush.frames:
                    keys.update(zip(column(frame.roots).tolist(), column(frame.keys).tolist(), strict=True))
        assert alone.roots == [root_base(1, 5) | (SEQUENCE_MASK + 1 - ahead + n) & SEQUENCE_MASK for n in range(20)]
        for init in inits:
            tracker.init(init.first_root, init.xors)
            tracker.check()
        assert tracker.live == 20
        columns = [
            (column(root.to_bytes(8, "little")), column(key.to_bytes(8, "little"))) for root, key in keys.items()
        ]
        done = [tracker.ack(roots, xors) for roots, xors in columns]
        assert [roots.tolist() for roots in done] == [[root] for root in keys]
        alone.verdict(alone.roots)
        alone.step()
        assert sorted(alone.spout.acked) == list(range(20))


class Numbers(Spout):
    n = 0

    def next_tuple(self) -> None:
        if self.n < 200:
            self.emit([self.n], tup_id=self.n)
            self.n += 1


class First:
    """Custom grouping that chooses the first target task."""

    def prepare(self, context: Any, component: str, stream: str, target_tasks: Any) -> None:
        self.tasks = list(target_tasks)

    def choose_tasks(self, values: Any) -> Any:
        return self.tasks[0]


def test_custom_grouping_receives_the_reading_tasks() -> None:
    spec = GroupingSpec(GroupingKind.CUSTOM, (), "m:First", b"\x80")
    parts = {
        "s": Part(Numbers, 1, {"default": ["n"]}),
        "other": Part(BasicBolt, 2, {}, [("s", "default", SHUFFLE)]),
        "r": Part(BasicBolt, 3, {}, [("s", "default", spec)]),
    }
    world = ExecutorHarness(parts, classes={"m:First": First})
    executor: Any = world.executors[1]
    (custom,) = [g for g in executor.task.router.streams["default"].groupings if isinstance(g, UserGrouping)]
    assert custom._chooser.tasks == list(world.plan.tasks_of("r"))
