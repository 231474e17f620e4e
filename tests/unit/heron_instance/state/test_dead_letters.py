"""Dead letters: a failing record has no effect except its letter."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from heron_runtime.model.ids import DEFAULT_STREAM
from heronry.api.component import BasicBolt
from heronry.api.dead_letters import DeadLetter
from heronry.api.hooks import TaskHook
from tests.support.harness import dead_letters
from tests.support.harness.dead_letters import ACTS, BOLT, KEYS, Record, run
from tests.support.harness.executors import SHUFFLE, ExecutorHarness, Part, fields
from tests.support.harness.stateful_executors import StatefulExecutorHarness

ENDS = ("well", "well", "raise", "fail")
RECORDS = st.lists(
    st.tuples(
        st.integers(0, KEYS - 1), st.lists(st.sampled_from(ACTS), max_size=5).map(tuple), st.sampled_from(ENDS)
    ),
    max_size=12,
)  # fmt: skip


def numbered(drawn: Any) -> list[Record]:
    return [Record(key, number, acts, end) for number, (key, acts, end) in enumerate(drawn)]


def holds(records: list[Record], basic: bool, siblings: bool, batches: tuple[int, ...]) -> None:
    """Assert that the run equals one without the failing records, plus one letter for each of them."""
    bad = [record for record in records if record.end != "well"]
    found = run(records, basic, siblings, batches)
    truth = run([record for record in records if record.end == "well"], basic, siblings, batches)
    assert found[:4] == truth[:4]
    assert [Record(*letter.values) for letter in found.letters] == bad
    for letter, record in zip(found.letters, bad, strict=True):
        assert (letter.component, letter.task, letter.source, letter.stream) == ("b", BOLT, "s", DEFAULT_STREAM)
        kind = "ValueError" if record.end == "raise" else "failed"
        assert letter.error == f"{kind}: record {record.number}"
        assert ("in process" in letter.traceback) is (record.end == "raise")
    assert found.counters.get("__dead-letter-count", 0) == len(bad)
    assert found.counters.get("__ack-count/s/default", 0) == len(records)
    assert not any(name.startswith("__fail-count") for name in found.counters)


@given(RECORDS, st.booleans(), st.booleans(), st.lists(st.integers(1, 6), min_size=1, max_size=3).map(tuple))
@example([(0, ("direct",), "raise"), (0, ("emit", "direct"), "well")], True, False, (2,))
@example([(0, ("append",), "well"), (0, ("append",), "raise")], False, False, (2,))
@example([(1, ("append", "emit kept"), "well"), (1, ("append", "last", "emit kept"), "raise")], False, True, (5,))
def test_failing_record_leaves_only_its_letter(
    drawn: Any, basic: bool, siblings: bool, batches: tuple[int, ...]
) -> None:
    holds(numbered(drawn), basic, siblings, batches)


class Raises(BasicBolt):
    """Bolt whose `process` raises; subclasses override `process`."""

    dead_letters = "bad"

    def process(self, tup: Any) -> None:
        raise ValueError("bad")


def world_of(
    bolt: type, letters_by: Any = SHUFFLE, config: dict[str, Any] | None = None, end: Any = ""
) -> StatefulExecutorHarness:
    class Source(dead_letters.Source):
        records = (Record(0, 7, ("set",), end),)

    world = StatefulExecutorHarness(
        {
            "s": Part(Source, 1, {DEFAULT_STREAM: Record._fields}),
            "b": Part(
                bolt, 1, {DEFAULT_STREAM: ["x"], "bad": DeadLetter._fields}, [("s", DEFAULT_STREAM, fields("key"))]
            ),
            "all": Part(dead_letters.Sink, 1, {}, [("b", DEFAULT_STREAM, SHUFFLE)]),
            "letters": Part(dead_letters.Sink, 1, {}, [("b", "bad", letters_by)]),
        },
        config,
    )
    world.run()
    return world


def letter_of(world: StatefulExecutorHarness) -> DeadLetter:
    ((_, values),) = world.objects("letters")[0].rows
    return DeadLetter(*values)


def test_letter_omits_values_that_exceed_the_tuple_limit() -> None:
    bound = {"topology.tuple.max.bytes": 2048}
    assert letter_of(world_of(Raises, config=bound)).values == (0, 7, ("set",), ""), "it is small enough"
    letter = letter_of(world_of(Raises, config=bound, end="x" * 1900))
    assert letter.values == ()
    assert letter.error.startswith("ValueError: bad (values left out: a tuple of ")

    class Long(Raises):
        def process(self, tup: Any) -> None:
            raise ValueError("x" * 3000)

    world = world_of(Long, config=bound)
    assert "is larger than topology.tuple.max.bytes" in str(world.executors[BOLT].failed), "even without its values"


def test_letter_with_unsupported_key_fails_the_task() -> None:
    world = world_of(Raises, letters_by=fields("values"), end=[1])
    assert "UnsupportedKey" in str(world.executors[BOLT].failed)


def test_hooks_see_calls_that_become_letters() -> None:
    seen: list[str] = []

    class Watches(TaskHook):
        def bolt_execute(self, info: Any) -> None:
            seen.append("execute")

        def bolt_ack(self, info: Any) -> None:
            seen.append("ack")

        def bolt_fail(self, info: Any) -> None:
            seen.append("fail")

    class Watched(Raises):
        def initialize(self, config: Any, context: Any) -> None:
            context.add_task_hook(Watches())

    assert letter_of(world_of(Watched)).error == "ValueError: bad"
    assert sorted(seen) == ["ack", "execute"]


def test_invalid_emit_fails_the_task_without_a_letter() -> None:
    class Asks(Raises):
        def process(self, tup: Any) -> None:
            self.emit([1], need_task_ids=True)

    world = world_of(Asks)
    assert "hint: leave out need_task_ids or dead_letters" in str(world.executors[BOLT].failed)
    assert world.objects("letters")[0].rows == []


def test_interrupted_call_is_undone() -> None:
    class Ends(BaseException):
        """Stand-in for the stop signal that an emit raises."""

    class Stopped(Raises):
        def process(self, tup: Any) -> None:
            self.keyed[0] = 1
            self.emit([1])
            raise Ends

        def close(self) -> None:
            self.emit([2])

    made: list[Any] = []

    class Kept(Stopped):
        def initialize(self, config: Any, context: Any) -> None:
            made.append(self)

    with pytest.raises(Ends):
        world_of(Kept)
    (bolt,) = made
    assert dict(bolt.keyed) == {}
    bolt.close()
    assert [out.waiting for out in bolt._collector.streams.values()] == [[(2,)], []]


def test_emits_outside_of_process_are_not_deferred() -> None:
    class Early(Raises):
        def initialize(self, config: Any, context: Any) -> None:
            self.emit([1])
            assert self.emit([2], need_task_ids=True) == [3]

    assert world_of(Early).objects("all")[0].rows == [(DEFAULT_STREAM, (1,)), (DEFAULT_STREAM, (2,))]


def test_deferred_emits_keep_their_order() -> None:
    """The order also holds across several streams that one task reads."""
    acts = ("emit", "many", "custom", "direct", "emit", "many")
    records = [Record(number % KEYS, number, acts, "well") for number in range(40)]
    for basic in (False, True):
        outcome = run(records, basic, True, (3,))
        for rows in outcome.read:
            numbers = [values[1] for _, values in rows]
            assert len(numbers) > 40
            assert numbers == sorted(numbers)


@pytest.mark.parametrize(("declares", "kept"), [(False, True), (True, False), (False, False), (True, True)])
def test_letters_need_stateful_mode_and_a_declaring_bolt(declares: bool, kept: bool) -> None:
    """Otherwise a failing tuple is sent again and the exception counts as an exception."""

    class Raises(BasicBolt):
        dead_letters = "bad" if declares else ""

        def process(self, tup: Any) -> None:
            raise ValueError("no")

    outputs = {"bad": DeadLetter._fields} if declares else {}
    parts = {
        "s": Part(dead_letters.Source, 1, {"default": Record._fields}),
        "b": Part(Raises, 1, outputs, [("s", "default", SHUFFLE)]),
    }
    world = (StatefulExecutorHarness if kept else ExecutorHarness)(parts)
    bolt: Any = world.executors[BOLT]
    assert bolt.collector.may_defer is (declares and kept)
    assert bolt._processing._dead_letters is None or (declares and kept)
    bolt.task.counts.hand_over()
    assert ("__dead-letter-count" in world.telemetry[BOLT].counters) is (declares and kept)


def test_undo_does_not_revert_kept_changes() -> None:
    parts = {
        "s": Part(dead_letters.Source, 1, {"default": Record._fields}),
        "b": Part(dead_letters.Obeys, 1, {"bad": DeadLetter._fields}, [("s", "default", fields("key"))]),
    }
    parts["b"].make = type("Declares", (dead_letters.Obeys,), {"dead_letters": "bad"})
    kept = StatefulExecutorHarness(parts).executors[BOLT].task.state
    for state in (kept.own, kept.by_key):
        assert state is not None
        kept.begin()
        state[1] = "kept"
        kept.keep()
        state[2] = "later"
        kept.undo()
        assert dict(state) == {1: "kept", 2: "later"}, "nothing has begun since"
        kept.begin()
        del state[1]
        state[2] = "undone"
        kept.undo()
        assert dict(state) == {1: "kept", 2: "later"}
