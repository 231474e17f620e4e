"""Emitted tuples keep the values they had at `emit`, whatever user code does with its objects later."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from heronry.api.component import BasicBolt, Bolt, Spout
from tests.support.harness.executors import chain

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
