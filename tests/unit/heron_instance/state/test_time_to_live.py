"""Time to live of keyed entries in executors: within calls, across restores, in every mode."""

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
    """Spout that emits the rows that the test has set."""

    def initialize(self, config: Any, context: Any) -> None:
        self.rows: list[tuple[str, str]] = []

    def next_tuple(self) -> None:
        rows, self.rows = self.rows, []
        self.emit_many(rows)


class Visits(BasicBolt):
    """Bolt that counts visits and forgets a visitor after ten seconds. ``seen`` holds each observed state."""

    def initialize(self, config: Any, context: Any) -> None:
        self.seen: list[Any] = [sorted(self.keyed.items())]
        self.during: Any = lambda: None

    def process(self, tup: Any) -> None:
        who, what = tup.values
        if what == "come":
            self.keyed.put(who, [1], ttl=TTL_S)
        elif what == "again":
            self.keyed[who].append(1)  # an update in place does not extend the lifetime
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
    """Feed these rows to the bolt and return everything it has seen."""
    source: Any = world.objects("s")[0]
    source.rows = list(rows)
    world.run()
    assert world.executors[BOLT].failed is None
    return world.objects("b")[0].seen


def test_entry_expires_between_calls_and_not_within_one() -> None:
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
def test_expiry_survives_a_restore_and_precedes_user_code(away_s: float) -> None:
    world = StatefulExecutorHarness(PARTS, wall_s=100.0)
    visit(world, ("ann", "come"), ("bob", "stay"))
    world.wall_s += 5
    visit(world, ("cat", "come"), ("ann", "again"))
    blocks = list(world.executors[BOLT].task.state.by_key.take(1, 0))
    other = StatefulExecutorHarness(PARTS, restored={BOLT: RestoredState(1, blocks)}, wall_s=world.wall_s + away_s)
    left = {"ann": [1, 1], "bob": [1], "cat": [1]} if away_s < 5 else {"bob": [1]}
    assert visit(other) == [sorted(left.items())], "as initialize saw it"
    other.wall_s += 5
    left.pop("ann", None)
    visit(other, ("dan", "look"))
    assert dict(other.objects("b")[0].keyed) == left
    deleted = {row[0] for block in other.executors[BOLT].task.state.by_key.take(2, 1) for row in block.rows}
    assert "ann" in deleted, "the next checkpoint says so"


def test_time_to_live_works_without_checkpoints() -> None:
    world = ExecutorHarness(PARTS, {"topology.reliability.mode": "ATMOST_ONCE"})
    assert visit(world, ("ann", "come"), ("ann", "again"))[-1] == ("ann", 2)
    component = Visits()
    Recorder.attach(component)
    component.keyed.put("ann", 1, ttl=TTL_S)
    assert (component.keyed["ann"], component.keyed.peek("bob", 2)) == (1, 2)
