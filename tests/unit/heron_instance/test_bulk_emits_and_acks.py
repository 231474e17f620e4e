"""``emit_many`` over several streams to one reader keeps their order; ``ack_many`` settles whole batches, later too."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from instance_world import ALL, SHUFFLE, Part, World, fields

from heron_instance.core.streams import OutputStream
from heronry.api.component import Bolt, Spout
from heronry.api.tuples import Tuple, TupleBatch
from heronry.testing import Recorder


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
    """Passes rows on by turns over two streams, and acks a batch only when the next one, or a tick, has come."""

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
def test_order_is_kept_over_streams_and_every_tuple_is_acked_once(seed: int) -> None:
    world = World(
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


def test_a_batch_with_settled_tuples_acks_the_rest() -> None:
    class Picky(Bolt):
        def process_batch(self, tuples: TupleBatch) -> None:
            self.fail(tuples[1], "no")
            self.ack_many(tuples)
            self.ack_many(tuples)

    world = World(
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
def test_what_is_no_row_is_refused_in_bulk_too(row: Any) -> None:
    """Although it has as many items as a row has fields."""
    stream = OutputStream("b", "left", 0, ("n", "m"), False)
    with pytest.raises(TypeError, match="stream 'left': emit takes a list or tuple of values, not "):
        stream.rows_of([(1, 2), row])
    given = [[1, 2], (3, 4)]
    rows = stream.rows_of(given)
    given[0][1] = 9  # type: ignore[index]
    assert rows == [(1, 2), (3, 4)], "it is the task's own from now on"


def test_a_recorder_knows_bulk_acks() -> None:
    bolt = Ordered()
    recorder = Recorder.attach(bolt)
    batch = TupleBatch.of([(1,), (2,)], ["n"])
    bolt.ack_many(batch)
    bolt.ack_many(batch[0])
    assert [tup.values[0] for tup in recorder.acked] == [1, 2, 1]
