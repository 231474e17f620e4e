"""Emits: tuples keep their values, ``emit_many`` keeps the order, and ``ack_many`` settles whole batches."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heron_instance.core.output_streams import OutputStream
from heronry.api.component import BasicBolt, Bolt, Spout
from heronry.api.tuples import Tuple, TupleBatch
from heronry.testing import Recorder
from tests.support.harness.executors import ALL, SHUFFLE, ExecutorHarness, Part, chain, fields

COUNT = 60


@dataclass
class Reading:
    """Value of a user-defined class."""

    numbers: list[int] = field(default_factory=lambda: [0])


class Reusing(Spout):
    """Spout that emits the same object in each tuple and changes it between emits."""

    first: Callable[[], Any] = staticmethod(lambda: [0])
    change: Callable[[Any, int], None] = staticmethod(lambda values, n: values.__setitem__(0, n))
    send: Callable[[Any, int], Any] = lambda self, n: self.emit([self.values], tup_id=n)

    def initialize(self, config: dict[str, Any], context: Any) -> None:
        self.n = 0
        self.values = self.first()

    def next_tuple(self) -> None:
        for _ in range(20):
            if self.n < COUNT:
                self.change(self.values, self.n)
                self.send(self.n)
                self.n += 1


def refill(values: list[Any], n: int) -> None:
    values.clear()
    values.append(n)


WAYS: dict[str, dict[str, Any]] = {
    "list": {"first": list, "change": refill},
    "dict": {"first": lambda: {"inner": {}}, "change": lambda values, n: values["inner"].update(n=n)},
    "tuple of list": {"first": lambda: ("constant", [0]), "change": lambda values, n: refill(values[1], n)},
    "object": {"first": Reading, "change": lambda values, n: refill(values.numbers, n)},
    "array": {"first": lambda: np.zeros(3, dtype=np.int64), "change": lambda values, n: values.fill(n)},
    "row of emit_many": {"send": lambda self, n: self.emit_many([[self.values]], [n])},
    "untracked": {"send": lambda self, n: self.emit([self.values])},
    "task ids": {"send": lambda self, n: self.emit([self.values], n, need_task_ids=True)},
}


def reusing(way: str) -> type[Reusing]:
    static = {name: staticmethod(each) if name != "send" else each for name, each in WAYS[way].items()}
    return type("Reuses", (Reusing,), static)


class Collects(BasicBolt):
    def initialize(self, config: dict[str, Any], context: Any) -> None:
        self.seen: list[Any] = []

    def process(self, tup: Any) -> None:
        self.seen.append(tup[0])


class Passes(Bolt):
    """Bolt that reuses one list for all of its emits."""

    def initialize(self, config: dict[str, Any], context: Any) -> None:
        self.buffer: list[Any] = []

    def process(self, tup: Any) -> None:
        self.buffer.append(tup[0])
        self.emit([self.buffer], anchors=[tup])
        self.buffer.clear()
        self.ack(tup)


def number_of(value: Any) -> int:
    while not isinstance(value, int | np.integer):
        if isinstance(value, dict):
            value = next(iter(value.values()))
        else:
            value = value.numbers if isinstance(value, Reading) else value[-1]
    return int(value)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("mode", ["ATMOST_ONCE", "ATLEAST_ONCE"])
def test_spout_may_change_emitted_objects(way: str, mode: str) -> None:
    world = chain(reusing(way), Collects, config={"topology.reliability.mode": mode})
    world.run()
    assert sorted(map(number_of, world.objects("r")[0].seen)) == list(range(COUNT))


def test_bolt_may_reuse_an_emitted_list() -> None:
    world = chain(reusing("list"), Passes, Collects)
    world.run()
    assert sorted(map(number_of, world.objects("r")[0].seen)) == list(range(COUNT))


def test_reader_receives_separate_copies_of_a_constant() -> None:
    constant = {"n": 0, "many": [1]}

    class Constant(Reusing):
        send = lambda self, n: self.emit([constant], tup_id=n)  # noqa: E731

    class Edits(Collects):
        def process(self, tup: Any) -> None:
            tup[0]["n"] += 1
            self.seen.append(copy.deepcopy(tup[0]))

    world = chain(Constant, Edits)
    world.run()
    assert world.objects("r")[0].seen == [{"n": 1, "many": [1]}] * COUNT


class Numbers(Spout):
    total = 120

    def initialize(self, config: dict[str, Any], context: Any) -> None:
        self.next = 0
        self.acked: list[int] = []

    def next_tuple(self) -> None:
        rows = [(n,) for n in range(self.next, min(self.total, self.next + 7))]
        if rows:
            self.emit_many(rows, [n for (n,) in rows], "odd" if self.next // 7 % 2 else "even")
            self.next += len(rows)

    def ack(self, tup_id: int) -> None:
        self.acked.append(tup_id)


class Lazy(Bolt):
    """Bolt that alternates rows between two streams and acks a batch at the next batch or tick."""

    def initialize(self, config: dict[str, Any], context: Any) -> None:
        self.serial = 0
        self.held: list[TupleBatch] = []

    def process_batch(self, tuples: TupleBatch) -> None:
        for tup in tuples:
            self.emit_many([(self.serial, 2 * self.serial)], "left" if self.serial % 3 else "right", tup)
            self.serial += 1
        self.settle()
        self.held.append(tuples)

    def settle(self) -> None:
        for batch in self.held:
            self.ack_many(batch)
        self.held.clear()

    def process_tick(self, tup: Tuple) -> None:
        self.settle()


class Ordered(Bolt):
    def initialize(self, config: dict[str, Any], context: Any) -> None:
        self.seen: list[int] = []

    def process(self, tup: Tuple) -> None:
        self.seen.append(tup.values[0])
        self.ack_many(tup)


@settings(max_examples=20)
@given(st.integers(0, 10_000))
def test_order_holds_across_streams_and_every_tuple_is_acked_once(seed: int) -> None:
    world = ExecutorHarness(
        {
            "numbers": Part(Numbers, 1, {"even": ["n"], "odd": ["n"]}),
            "lazy": Part(
                Lazy, 1, {"left": ["n", "m"], "right": ["n", "m"]},
                [("numbers", "even", SHUFFLE), ("numbers", "odd", SHUFFLE)], {"topology.tick.tuple.freq.ms": 20},
            ),
            "all": Part(Ordered, 1, {}, [("lazy", "left", fields("n")), ("lazy", "right", ALL)]),
        },
        seed=seed,
    )  # fmt: skip
    world.run()
    (spout,), (ordered,) = world.objects("numbers"), world.objects("all")
    assert ordered.seen == list(range(Numbers.total))
    assert sorted(spout.acked) == list(range(Numbers.total))
    assert not world.tracker


def test_ack_many_acks_the_unsettled_tuples_of_a_batch() -> None:
    class Picky(Bolt):
        def process_batch(self, tuples: TupleBatch) -> None:
            self.fail(tuples[1], "no")
            self.ack_many(tuples)
            self.ack_many(tuples)

    world = ExecutorHarness(
        {"numbers": Part(Numbers, 1, {"even": ["n"], "odd": ["n"]}),
         "picky": Part(Picky, 1, {}, [("numbers", "even", SHUFFLE), ("numbers", "odd", SHUFFLE)])},
        seed=1,
    )  # fmt: skip
    world.run()
    (spout,) = world.objects("numbers")
    assert len(world.failed) + len(spout.acked) == Numbers.total
    assert world.failed
    assert not world.tracker


@pytest.mark.parametrize("row", ["ab", b"ab", {"n": 1, "m": 2}])
def test_emit_many_rejects_items_that_are_not_rows(row: Any) -> None:
    """The values have as many items as a row has fields."""
    stream = OutputStream("b", "left", 0, ("n", "m"), False)
    with pytest.raises(TypeError, match="stream 'left': emit takes a list or tuple of values, not "):
        stream.rows_of([(1, 2), row])
    given = [[1, 2], (3, 4)]
    rows = stream.rows_of(given)
    given[0][1] = 9  # type: ignore[index]
    assert rows == [(1, 2), (3, 4)], "it is the task's own from now on"


def test_recorder_records_bulk_acks() -> None:
    bolt = Ordered()
    recorder = Recorder.attach(bolt)
    batch = TupleBatch.of([(1,), (2,)], ["n"])
    bolt.ack_many(batch)
    bolt.ack_many(batch[0])
    assert [tup.values[0] for tup in recorder.acked] == [1, 2, 1]


class Script(Spout):
    """Spout that runs one scripted action."""

    def initialize(self, config: dict[str, Any], context: Any) -> None:
        self.acked: list[Any] = []
        self.said: list[str] = []
        self.script: Any = None

    def next_tuple(self) -> None:
        script, self.script = self.script, None
        if script is not None:
            try:
                script(self)
            except ValueError as error:
                self.said.append(str(error))

    def ack(self, tup_id: Any) -> None:
        self.acked.append(tup_id)


def told(script: Any, mode: str = "ATLEAST_ONCE") -> tuple[Any, list[Any]]:
    """Return the spout after it has run the script, and the values its reader received."""
    world = ExecutorHarness(
        {
            "s": Part(Script, 1, {"default": ["n"], "odd": ["n"]}),
            "r": Part(Ordered, 1, {}, [("s", "default", SHUFFLE), ("s", "odd", SHUFFLE)]),
        },
        {"topology.reliability.mode": mode},
    )
    spout: Any = world.components[1]
    spout.script = script
    world.run()
    return spout, world.components[2].seen


@pytest.mark.parametrize("mode", ["ATLEAST_ONCE", "ATMOST_ONCE"])
def test_ids_may_be_an_iterator_with_missing_ids(mode: str) -> None:
    def script(spout: Any) -> None:
        spout.emit_many([[n] for n in range(5)], (n if n % 2 else None for n in range(5)))
        spout.emit_many([[5], [6]])
        spout.emit_many([], [])

    spout, seen = told(script, mode)
    assert seen == list(range(7))
    assert sorted(spout.acked) == [1, 3]


def test_emit_many_rejects_wrong_id_counts_and_unknown_streams_with_hints() -> None:
    def one_more(spout: Any) -> None:
        spout.emit_many([[1], [2]], [1, 2, 3])

    def nowhere(spout: Any) -> None:
        spout.emit_many([[1]], [1], "even")

    def alone(spout: Any) -> None:
        spout.emit([1], stream="even")

    def not_direct(spout: Any) -> None:
        spout.emit([1], direct_task=2)

    assert told(one_more)[0].said == ["component 's', stream 'default': emit_many got 2 rows and 3 tup_ids"]
    no_stream = "unknown stream 'even' (streams: default, odd)\nhint: declare it in outputs"
    assert told(nowhere)[0].said == told(alone)[0].said == [no_stream]
    (said,) = told(not_direct)[0].said
    assert said.startswith(
        "component 's', stream 'default': direct_task given, but the stream is not direct\nhint: declare it with"
    )


def test_need_task_ids_applies_to_one_emit_and_keeps_order() -> None:
    given: list[Any] = []

    def script(spout: Any) -> None:
        given.append(spout.emit([0], 0))
        given.append(spout.emit([1], 1, need_task_ids=True))
        given.append(spout.emit([2], 2, stream="odd", need_task_ids=True))
        given.append(spout.emit([3], None))

    spout, seen = told(script)
    assert given == [None, [2], [2], None]
    assert seen == [0, 1, 2, 3]
    assert sorted(spout.acked) == [0, 1, 2]
