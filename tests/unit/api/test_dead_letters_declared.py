"""Declaration of dead letters on a bolt class: the resulting stream, and validation at submission."""

from __future__ import annotations

from typing import Any, ClassVar

import pytest

from heronry import BasicBolt, BatchBolt, Config, DeadLetter, Grouping, Spout, TopologyError, Tuple
from heronry.api.assemble import TopologyDraft, check_draft
from heronry.api.spec import Stream

EXACTLY = {Config.TOPOLOGY_RELIABILITY_MODE: Config.EFFECTIVELY_ONCE}


class Numbers(Spout):
    outputs = ("number",)

    def next_tuple(self) -> None:
        """Do nothing."""


class Count(BasicBolt):
    outputs = ("number", "count")
    dead_letters = "bad"

    def process(self, tup: Tuple) -> None:
        """Do nothing."""


class Letters(BasicBolt):
    def process(self, tup: Tuple) -> None:
        """Do nothing."""


def topology(cls: Any, read: bool = True, config: dict[str, Any] | None = None) -> Any:
    numbers, count = Numbers.spec(), cls.spec(inputs=["numbers"])
    parts = [("numbers", numbers), ("count", count)]
    if read:
        parts.append(("letters", Letters.spec(inputs={("count", "bad"): Grouping.SHUFFLE})))
    return check_draft(TopologyDraft("T", parts, EXACTLY if config is None else config))


def problem_of(cls: Any, **kw: Any) -> str:
    with pytest.raises(TopologyError) as refused:
        topology(cls, **kw)
    (problem,) = refused.value.problems
    return str(problem)


def test_declaration_creates_the_stream() -> None:
    schema = topology(Count).component("count").output("bad")
    assert schema.fields == DeadLetter._fields
    letter = DeadLetter("count", 3, "numbers", "default", (1,), "ValueError: bad", "")
    assert DeadLetter.of(Tuple.of(tuple(letter), schema.fields)) == letter
    assert topology(Letters, read=False).component("count").outputs == ()


def test_unread_dead_letters_are_rejected() -> None:
    assert problem_of(Count, read=False) == (
        "component 'count': declares dead_letters = 'bad', and no bolt reads that stream, so letters would be lost; "
        "give a bolt inputs={('count', 'bad'): Grouping.SHUFFLE}"
    )


@pytest.mark.parametrize("mode", [Config.ATMOST_ONCE, Config.ATLEAST_ONCE])
def test_other_reliability_modes_are_rejected(mode: str) -> None:
    problem = problem_of(Count, config={Config.TOPOLOGY_RELIABILITY_MODE: mode})
    assert f"with {mode} what the failing call has done is not undone; set topology.reliability.mode" in problem


def test_component_that_cannot_have_dead_letters_is_rejected() -> None:
    class Batches(BatchBolt):
        dead_letters = "bad"

        def process_batch(self, tuples: Any) -> None:
            """Do nothing."""

    class Own(Count):
        outputs: ClassVar[Any] = [Stream(fields=["x"], name="bad")]

    class Odd(Count):
        dead_letters = True  # type: ignore[assignment]

    class Source(Numbers):
        dead_letters = "bad"

    assert "so the record that failed is unknown; define process instead" in problem_of(Batches)
    with pytest.raises(TopologyError, match=r"makes that stream with the fields of heronry\.DeadLetter"):
        topology(Own)
    assert "write the name of a stream" in problem_of(Odd, read=False)
    assert "does not carry: use auto" in problem_of(Count, config={**EXACTLY, Config.TOPOLOGY_SERIALIZER: "msgpack"})
    with pytest.raises(TopologyError, match="only what a bolt's process raises on becomes a dead letter"):
        check_draft(TopologyDraft("T", [("s", Source.spec()), ("l", Letters.spec(inputs=[("s", "bad")]))], EXACTLY))
