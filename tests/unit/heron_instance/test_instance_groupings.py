"""Groupings: the tasks that receive a row, and the order of rows."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from heron_instance.core.groupings import (
    DirectGrouping,
    FieldsGrouping,
    SharedDirectGrouping,
    TaskGrouping,
    make_grouping,
)
from heron_runtime.model.keys import UnsupportedKey, key_group
from heron_runtime.model.topology import GroupingKind, GroupingSpec
from heronry.api.component import BasicBolt, Bolt, Spout
from tests.support.harness.executors import ALL, SHUFFLE, ExecutorHarness, Part, fields, make_plan

Rows = list[tuple[Any, ...]]
key = st.one_of(
    st.text(max_size=3), st.integers(-5, 5), st.floats(-2, 2), st.booleans(), st.none(), st.binary(max_size=2)
)
rows_of_keys = st.lists(st.tuples(key, key, st.integers()), min_size=1, max_size=60)


def grouping(spec: GroupingSpec, readers: int, seed: int = 0, containers: int = 1) -> TaskGrouping:
    parts = {"s": Part(Spout, 1, {"default": ["a", "b", "c"]}), "r": Part(Bolt, readers, {}, [("s", "default", spec)])}
    plan = make_plan(parts, containers=containers)
    (edge,) = plan.topology.edges()
    made = make_grouping(edge, plan, 1, np.random.default_rng(seed))
    assert made is not None
    return made


def deal(made: TaskGrouping, runs: list[Rows]) -> dict[int, Rows]:
    """Return the rows of each task in order, after checking the positions of every part."""
    got: dict[int, Rows] = defaultdict(list)
    for rows in runs:
        for part in made.split(rows):
            places = range(len(rows))[part.at] if isinstance(part.at, slice) else part.at.tolist()
            assert [rows[place] for place in places] == list(part.rows)
            assert list(places) == sorted(places), "order is kept"
            for task in part.tasks:
                got[task] += part.rows
    return got


@given(runs=st.lists(rows_of_keys, max_size=6), readers=st.integers(1, 5), seed=st.integers(0, 99))
def test_shuffle_is_even_for_any_runs(runs: list[Rows], readers: int, seed: int) -> None:
    got = deal(grouping(SHUFFLE, readers, seed), runs)
    counts = [len(got[task]) for task in range(2, 2 + readers)]
    assert sum(counts) == sum(map(len, runs))
    assert max(counts) - min(counts) <= 1


@given(runs=st.lists(rows_of_keys, max_size=4), readers=st.integers(1, 5), names=st.sampled_from([("a",), ("b", "a")]))
def test_equal_keys_meet_and_follow_the_key_group_table(runs: list[Rows], readers: int, names: tuple[str, ...]) -> None:
    made = grouping(fields(*names), readers)
    assert isinstance(made, FieldsGrouping)
    positions = ["abc".index(name) for name in names]
    table = [2 + group * readers // 1024 for group in range(1024)]
    for task, rows in deal(made, runs).items():
        for row in rows:
            assert table[key_group(tuple(row[p] for p in positions))] == task


PARTIAL = GroupingSpec(GroupingKind.PARTIAL_KEY, ("a",))


@given(runs=st.lists(rows_of_keys, max_size=4), readers=st.integers(1, 5))
def test_partial_key_uses_two_tasks_for_all_emitters(runs: list[Rows], readers: int) -> None:
    tasks: dict[int, set[int]] = defaultdict(set)
    for emitter in range(3):
        for task, rows in deal(grouping(PARTIAL, readers, seed=emitter), runs[emitter:]).items():
            for row in rows:
                tasks[key_group((row[0],))].add(task)
    assert all(len(found) <= 2 for found in tasks.values())


@given(runs=st.lists(st.integers(1, 60), min_size=1, max_size=20), readers=st.integers(2, 7), name=st.text(max_size=3))
def test_partial_key_shares_a_hot_key_evenly(runs: list[int], readers: int, name: str) -> None:
    got = deal(grouping(PARTIAL, readers), [[(name, 0, 0)] * n for n in runs])
    counts = sorted(len(rows) for rows in got.values())
    assert sum(counts) == sum(runs)
    assert len(counts) == min(2, sum(runs))
    assert counts[-1] - counts[0] <= 1 or len(counts) == 1


def test_partial_key_balances_skewed_keys_better_than_fields() -> None:
    rng = np.random.default_rng(1)
    rows: Rows = [(f"k{n}", 0, 0) for n in rng.zipf(1.3, 20_000).tolist()]
    worst = {}
    for spec in (fields("a"), PARTIAL):
        got = deal(grouping(spec, 8), [rows[start : start + 500] for start in range(0, len(rows), 500)])
        worst[spec.kind] = max(map(len, got.values())) / len(rows)
    assert worst[GroupingKind.PARTIAL_KEY] < 0.6 * worst[GroupingKind.FIELDS]


def test_bulk_hashing_equals_single_hashing_and_handles_surrogates() -> None:
    made = grouping(fields("a"), 4)
    assert isinstance(made, FieldsGrouping)
    for values in (["a", "b", "ü", ""], ["a", "b"], ["\ud800", "x"], [1, 1.0, True], [None, b"x", "x"]):
        rows: Rows = [(value, 0, 0) for value in values]
        assert made.groups(rows).tolist() == [key_group((value,)) for value in values]


@given(rows=rows_of_keys, readers=st.integers(1, 4))
def test_all_sends_to_every_task_and_global_to_the_first(rows: Rows, readers: int) -> None:
    assert all(got == rows for got in deal(grouping(ALL, readers), [rows]).values())
    assert deal(grouping(GroupingSpec(GroupingKind.GLOBAL), readers), [rows]) == {2: rows}


def test_local_or_shuffle_prefers_tasks_of_the_same_container() -> None:
    spec = GroupingSpec(GroupingKind.LOCAL_OR_SHUFFLE)
    assert grouping(spec, 4, containers=2).tasks == (3, 5)  # tasks 1, 3 and 5 are in container 1
    assert grouping(spec, 1, containers=2).tasks == (2,)


def test_direct_grouping_rejects_tasks_that_do_not_read() -> None:
    made = grouping(GroupingSpec(GroupingKind.DIRECT), 3)
    assert isinstance(made, DirectGrouping)
    for task in (4, 2, 4):
        made.decide((task,), task)
    assert deal_decided(made, [(4,), (2,), (4,)]) == {4: [(4,), (4,)], 2: [(2,)]}
    with pytest.raises(ValueError, match="readers"):
        made.decide((9,), 9)
    with pytest.raises(ValueError, match="direct_task="):
        made.decide((9,), None)


def test_shared_direct_grouping_delivers_rows_to_the_chosen_readers() -> None:
    made = SharedDirectGrouping((2, 4), "s.default")
    chosen = [4, 9, 2, 4, None]
    for task in chosen:
        made.decide((task,), task)
    parts = made.split([(task,) for task in chosen])
    assert [(part.tasks, list(part.rows)) for part in parts] == [((2,), [(2,)]), ((4,), [(4,), (4,)])]
    made.decide((2,), 2)
    assert [part.tasks for part in made.split([(2,)])] == [(2,)], "each choice is used once"


def deal_decided(made: TaskGrouping, rows: Rows) -> dict[int, Rows]:
    return {task: list(part.rows) for part in made.split(rows) for task in part.tasks}


class EvenToLast:
    """Custom grouping that drops odd numbers and sends even ones to the last tasks."""

    def __init__(self, width: int) -> None:
        self.width = width

    def prepare(self, context: Any, component: str, stream: str, target_tasks: Any) -> None:
        assert context.get_component_id() == component == "s"
        self.tasks = list(target_tasks)

    def choose_tasks(self, values: Any) -> list[int]:
        return [] if values[0] % 2 else self.tasks[-self.width :]


class Numbers(Spout):
    def initialize(self, config: dict[str, Any], context: Any) -> None:
        self.n, self.acked, self.ids = 0, [], []
        self.readers = context.get_component_tasks("r")

    def next_tuple(self) -> None:
        if self.n < 40:
            self.send(self.n)
            self.n += 1

    def send(self, n: int) -> None:
        self.emit([n], tup_id=n)

    def ack(self, tup_id: Any) -> None:
        self.acked.append(tup_id)


class Keep(BasicBolt):
    def initialize(self, config: dict[str, Any], context: Any) -> None:
        self.got: list[Any] = []

    def process(self, tup: Any) -> None:
        self.got.append((tup.stream, tup[0]))


class InBulk(Numbers):
    def next_tuple(self) -> None:
        if self.n == 0:
            self.n = 40
            self.emit_many([[n] for n in range(40)], list(range(40)))


DIRECT = GroupingSpec(GroupingKind.DIRECT)


def delivered(send: Any, *readers: tuple[int, dict[str, GroupingSpec]]) -> tuple[Any, list[list[list[Any]]]]:
    """Return the spout after 40 calls of ``send``, and what each task of each reader got."""
    streams = {stream: how for _, read in readers for stream, how in read.items()}
    direct = [stream for _, read in readers for stream, how in read.items() if how is DIRECT]
    parts = {"s": Part(type("Sends", (Numbers,), {"send": send}), 1, dict.fromkeys(streams, ("n",)), direct=direct)}
    for name, (tasks, read) in zip("rqa", readers, strict=False):
        parts[name] = Part(Keep, tasks, {}, [("s", stream, how) for stream, how in read.items()])
    world = ExecutorHarness(parts)
    world.run()
    (spout,) = world.objects("s")
    assert sorted(spout.acked) == list(range(40))
    return spout, [[bolt.got for bolt in world.objects(name)] for name in parts if name != "s"]


@pytest.mark.parametrize("spout", [Numbers, InBulk])
def test_custom_grouping_may_choose_several_tasks_or_none(spout: type[Spout]) -> None:
    spec = GroupingSpec(GroupingKind.CUSTOM, (), "m:Even", msgspec.msgpack.encode({"width": 2}))
    parts = {
        "s": Part(spout, 1, {"default": ["n"]}),
        "r": Part(Keep, 3, {}, [("s", "default", spec)]),
        "q": Part(Keep, 2, {}, [("s", "default", SHUFFLE)]),
    }
    world = ExecutorHarness(parts, classes={"m:Even": EvenToLast})
    world.run()
    even = [("default", n) for n in range(0, 40, 2)]
    assert [bolt.got for bolt in world.objects("r")] == [[], even, even]
    assert sorted(world.objects("s")[0].acked) == list(range(40))


def test_direct_streams_reach_the_named_task_and_return_task_ids() -> None:
    def send(self: Any, n: int) -> None:
        task = self.readers[n % 3]
        self.ids.append((task, self.emit([n], n, "straight", direct_task=task, need_task_ids=True)))
        self.ids.append((None, self.emit([n], None, "default", need_task_ids=True)))

    spout, (readers,) = delivered(send, (3, {"straight": DIRECT, "default": SHUFFLE}))
    assert all(got == [task] for task, got in spout.ids if task is not None)
    assert Counter(got[0] for task, got in spout.ids if task is None).most_common()[0][1] == 14
    for index, got in enumerate(readers):
        assert [n for stream, n in got if stream == "straight"] == list(range(index, 40, 3))


def test_direct_emit_without_reader_is_acked_at_once() -> None:
    def send(self: Any, n: int) -> None:
        self.emit([n], n, "straight", direct_task=self.readers[0] if n % 3 else None)

    _, ((got,), _) = delivered(send, (1, {"straight": DIRECT}), (1, {"straight": DIRECT}))
    assert [n for _, n in got] == [n for n in range(40) if n % 3]


def test_single_direct_reader_rejects_foreign_tasks_beside_other_readers() -> None:
    """A single direct reader rejects tasks that do not read the stream; of several, each takes its own rows."""

    def send(self: Any, n: int) -> None:
        with pytest.raises(ValueError, match="does not read it"):
            self.emit([n], n, "straight", direct_task=1)
        self.emit([n], n, "straight", direct_task=self.readers[n % 3])

    _, (direct, all_) = delivered(send, (3, {"straight": DIRECT}), (2, {"straight": ALL}))
    assert [[n for _, n in got] for got in direct] == [list(range(index, 40, 3)) for index in range(3)]
    assert [[n for _, n in got] for got in all_] == [list(range(40))] * 2


def test_order_holds_across_streams_of_one_reader() -> None:
    def send(self: Any, n: int) -> None:
        self.emit([n], n, "default" if n % 3 else "other")

    _, ((got,),) = delivered(send, (1, {"default": SHUFFLE, "other": SHUFFLE}))
    assert [n for _, n in got] == list(range(40))


def test_key_without_stable_hash_is_rejected_at_emit_with_its_location() -> None:
    caught: list[Exception] = []

    def send(self: Any, n: int) -> None:
        for row in ([[1, 2]], [n, n], "x", [n]):
            try:
                self.emit(row, n)
            except Exception as error:
                caught.append(error)

    _, ((got,),) = delivered(send, (1, {"default": fields("n")}))
    key_error, width, kind = caught[:3]
    assert isinstance(key_error, UnsupportedKey)
    assert "component 's', stream 'default', field 'n'" in str(key_error)
    assert "1 fields (n), and 2 values" in str(width)
    assert "not str" in str(kind)
    assert len(got) == 40
