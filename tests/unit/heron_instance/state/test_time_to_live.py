"""Entries with a time to live in real executors: within calls, over restores, in every mode."""

from __future__ import annotations

from typing import Any

import pytest

from heron_instance.core.state.task_state import RestoredState
from heron_runtime.model.ids import DEFAULT_STREAM
from heronry.api.component import BasicBolt, Spout
from heronry.testing import Recorder
from tests.support.harness.executors import ExecutorHarness, Part, fields
from tests.support.harness.stateful_executors import StatefulExecutorHarness

BOLT = 2
TTL_S = 10.0


class Source(Spout):
    """Emits what the test has put there."""

    def initialize(self, config: Any, context: Any) -> None:
        self.rows: list[tuple[str, str]] = []

    def next_tuple(self) -> None:
        rows, self.rows = self.rows, []
        self.emit_many(rows)


class Visits(BasicBolt):
    """Counts visits; a visitor is forgotten ten seconds after the first. ``seen``: what each look has found."""

    def initialize(self, config: Any, context: Any) -> None:
        self.seen: list[Any] = [sorted(self.keyed.items())]
        self.during: Any = lambda: None

    def process(self, tup: Any) -> None:
        who, what = tup.values
        if what == "come":
            self.keyed.put(who, [1], ttl=TTL_S)
        elif what == "again":
            self.keyed[who].append(1)  # in place: it ends when it was to end
        elif what == "stay":
            self.keyed[who] = [1]
        before = self.keyed.get(who)
        self.during()
        assert self.keyed.get(who) is before
        assert (who in self.keyed) is (before is not None)
        self.seen.append((who, None if before is None else len(before)))


PARTS = {
    "s": Part(Source, 1, {DEFAULT_STREAM: ["who", "what"]}),
    "b": Part(Visits, 1, {}, [("s", DEFAULT_STREAM, fields("who"))]),
}


def visit(world: ExecutorHarness, *rows: tuple[str, str]) -> Any:
    """What the bolt has seen, with these rows behind."""
    source: Any = world.objects("s")[0]
    source.rows = list(rows)
    world.run()
    assert world.executors[BOLT].failed is None
    return world.objects("b")[0].seen


def test_an_entry_ends_between_calls_and_stands_within_them() -> None:
    world = StatefulExecutorHarness(PARTS, wall_s=100.0)
    assert visit(world, ("ann", "come"), ("bob", "come"), ("bob", "stay")) == [[], ("ann", 1), ("bob", 1), ("bob", 1)]

    def lasts() -> None:
        world.wall_s += 2 * TTL_S

    bolt: Any = world.objects("b")[0]
    bolt.during = lasts
    assert visit(world, ("ann", "again"))[-1] == ("ann", 2)
    bolt.during = lambda: None
    assert visit(world, ("ann", "look"), ("bob", "look"))[-2:] == [("ann", None), ("bob", 1)]
    assert dict(bolt.keyed) == {"bob": [1]}


@pytest.mark.parametrize("away_s", [4.0, 40.0])
def test_a_moment_is_kept_and_what_has_ended_is_gone_before_user_code_looks(away_s: float) -> None:
    world = StatefulExecutorHarness(PARTS, wall_s=100.0)
    visit(world, ("ann", "come"), ("bob", "stay"))
    world.wall_s += 5
    visit(world, ("cat", "come"), ("ann", "again"))
    blocks = list(world.state_of(world.executors[BOLT]).state.by_key.take(1, 0))
    other = StatefulExecutorHarness(PARTS, restored={BOLT: RestoredState(1, blocks)}, wall_s=world.wall_s + away_s)
    left = {"ann": [1, 1], "bob": [1], "cat": [1]} if away_s < 5 else {"bob": [1]}
    assert visit(other) == [sorted(left.items())], "as initialize saw it"
    other.wall_s += 5
    left.pop("ann", None)
    visit(other, ("dan", "look"))
    assert dict(other.objects("b")[0].keyed) == left
    deleted = {row[0] for block in other.state_of(other.executors[BOLT]).state.by_key.take(2, 1) for row in block.rows}
    assert "ann" in deleted, "the next checkpoint says so"


def test_the_other_modes_have_it_too() -> None:
    world = ExecutorHarness(PARTS, {"topology.reliability.mode": "ATMOST_ONCE"})
    assert visit(world, ("ann", "come"), ("ann", "again"))[-1] == ("ann", 2)
    component = Visits()
    Recorder.attach(component)
    component.keyed.put("ann", 1, ttl=TTL_S)
    assert (component.keyed["ann"], component.keyed.peek("bob", 2)) == (1, 2)
