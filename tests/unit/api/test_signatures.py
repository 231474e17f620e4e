"""Signatures of component methods, checked when a topology is defined."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest

from heronry import BasicBolt, BatchBolt, Bolt, Spout
from heronry.api.assemble import TopologyDraft, check_draft, signature_problems
from heronry.api.errors import TopologyError


class Source(Spout):
    outputs = ["n"]

    def next_tuple(self) -> None:
        pass


class Sink(Bolt):
    def process(self, tup: Any) -> None:
        pass


def decorated(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def around(*args: Any, **kwargs: Any) -> Any:
        return function(*args, "more", **kwargs)

    return around


WRONG: list[tuple[type, str, Any, str]] = [
    (Source, "next_tuple", lambda self, x: 0, "Made.next_tuple(self, x) cannot be called; write next_tuple(self)"),
    (Source, "next_tuple", lambda: 0, "Made.next_tuple() cannot be called; write next_tuple(self)"),
    (Source, "ack", lambda self: 0, "Made.ack(self) cannot be called; write ack(self, tup_id)"),
    (Source, "ack", lambda self, a, b: 0, "Made.ack(self, a, b) cannot"),
    (Source, "fail", lambda self: 0, "write fail(self, tup_id) or fail(self, tup_id, reason)"),
    (Source, "fail", lambda self, a, b, c: 0, "Made.fail(self, a, b, c) cannot"),
    (Source, "fail", lambda self, a, *, why: 0, "Made.fail(self, a, *, why) cannot"),
    (Source, "activate", lambda self, x: 0, "write activate(self)"),
    (Source, "initialize", lambda self, config: 0, "write initialize(self, config, context)"),
    (Source, "close", lambda self, x: 0, "write close(self)"),
    (Sink, "process", lambda self: 0, "Made.process(self) cannot be called; write process(self, tup)"),
    (Sink, "process", staticmethod(lambda: 0), "Made.process() cannot"),
    (Sink, "process", classmethod(lambda cls: 0), "write process(self, tup)"),
    (BatchBolt, "process_batch", lambda self: 0, "write process_batch(self, tuples)"),
    (BasicBolt, "process_tick", lambda self: 0, "write process_tick(self, tup)"),
    (Sink, "process", lambda self, *, tup: 0, "cannot be called"),
]
RIGHT: list[tuple[type, str, Any]] = [
    (Source, "next_tuple", lambda *args: 0),
    (Source, "next_tuple", lambda self, x=1: 0),
    (Source, "ack", lambda self, *ids: 0),
    (Source, "fail", lambda self, tup_id: 0),
    (Source, "fail", lambda self, tup_id, reason: 0),
    (Source, "fail", lambda self, tup_id, reason=None, *, more=1: 0),
    (Source, "fail", lambda self, *args, **kwargs: 0),
    (Sink, "process", lambda self, tup, more=None: 0),
    (Sink, "process", staticmethod(lambda tup: 0)),
    (Sink, "process", decorated(lambda self, tup, more: 0)),
    (Sink, "process", functools.partialmethod(lambda self, a, tup: 0, 1)),
    (Sink, "process", print),
    (Sink, "process", functools.partial(print)),
    (Sink, "process", property(lambda self: print)),
    (Sink, "process", type("Callable", (), {"__call__": lambda self, tup: 0})()),
]


@pytest.mark.parametrize(("base", "method", "given", "words"), WRONG)
def test_uncallable_signature_is_reported(base: type, method: str, given: Any, words: str) -> None:
    (problem,) = signature_problems(type("Made", (base,), {method: given}))
    assert words in problem


@pytest.mark.parametrize(("base", "method", "given"), RIGHT)
def test_callable_signature_is_accepted(base: type, method: str, given: Any) -> None:
    assert list(signature_problems(type("Made", (base,), {method: given}))) == []


def test_base_classes_have_valid_signatures() -> None:
    for cls in (Spout, Bolt, BasicBolt, BatchBolt):
        assert list(signature_problems(cls)) == []


def test_signature_problem_names_the_component() -> None:
    class Wrong(Sink):
        def process(self) -> None:  # type: ignore[override]  # the fault in question
            pass

    source = Source.spec()
    with pytest.raises(TopologyError) as caught:
        check_draft(TopologyDraft("T", [("words", source), ("count", Wrong.spec(inputs=[source]))], {}))
    assert caught.value.problems == (
        "component 'count': Wrong.process(self) cannot be called; write process(self, tup)",
    )
