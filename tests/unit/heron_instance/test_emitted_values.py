"""Emitted tuples keep the values they had at `emit`, whatever user code does with its objects later."""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from heronry.api.component import BasicBolt, Bolt, Spout
from tests.support.harness.executors import SHUFFLE, ExecutorHarness, Part

COUNT = 60


@dataclass
class Reading:
    """Value of a user-defined class."""

    numbers: list[int] = field(default_factory=list)


class Reusing(Spout):
    """Spout that emits the same object in each tuple and changes it between emits, as subclasses define."""

    total = COUNT

    def initialize(self, config: dict[str, Any], context: Any) -> None:
        self.n = 0
        self.values = self.first()

    def first(self) -> Any:
        raise NotImplementedError

    def change(self, n: int) -> None:
        raise NotImplementedError

    def send(self) -> None:
        self.emit([self.values], tup_id=self.n)

    def next_tuple(self) -> None:
        while self.n < self.total and self.n % 20 != 19:
            self.one()
        if self.n < self.total:
            self.one()

    def one(self) -> None:
        self.change(self.n)
        self.send()
        self.n += 1


class ReusesList(Reusing):
    def first(self) -> Any:
        return []

    def change(self, n: int) -> None:
        self.values.clear()
        self.values.append(n)


class ReusesDict(Reusing):
    def first(self) -> Any:
        return {"inner": {}}

    def change(self, n: int) -> None:
        self.values["inner"]["n"] = n


class ReusesTupleOfList(Reusing):
    def first(self) -> Any:
        return ("constant", [0])

    def change(self, n: int) -> None:
        self.values[1][0] = n


class ReusesObject(Reusing):
    def first(self) -> Any:
        return Reading()

    def change(self, n: int) -> None:
        self.values.numbers[:] = [n]


class ReusesArray(Reusing):
    def first(self) -> Any:
        return np.zeros(3, dtype=np.int64)

    def change(self, n: int) -> None:
        self.values[:] = n


class ReusesRowOfEmitMany(ReusesList):
    def send(self) -> None:
        self.emit_many([[self.values]], [self.n])


class ReusesUntracked(ReusesList):
    def send(self) -> None:
        self.emit([self.values])


class ReusesDirect(ReusesList):
    def send(self) -> None:
        self.emit([self.values], self.n, need_task_ids=True)


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
        elif isinstance(value, Reading):
            value = value.numbers
        else:
            value = value[-1]
    return int(value)


@pytest.mark.parametrize(
    "spout",
    [
        ReusesList, ReusesDict, ReusesTupleOfList, ReusesObject, ReusesArray,
        ReusesRowOfEmitMany, ReusesUntracked, ReusesDirect,
    ],
)  # fmt: skip
@pytest.mark.parametrize("mode", ["ATMOST_ONCE", "ATLEAST_ONCE"])
def test_spout_may_change_emitted_objects(spout: type[Reusing], mode: str) -> None:
    world = ExecutorHarness(
        {"s": Part(spout, 1, {"default": ["v"]}), "r": Part(Collects, 1, {}, [("s", "default", SHUFFLE)])},
        {"topology.reliability.mode": mode},
    )
    world.run()
    [reader] = world.objects("r")
    assert sorted(map(number_of, reader.seen)) == list(range(COUNT))


def test_bolt_may_reuse_an_emitted_list() -> None:
    world = ExecutorHarness(
        {
            "s": Part(ReusesList, 1, {"default": ["v"]}),
            "b": Part(Passes, 1, {"default": ["v"]}, [("s", "default", SHUFFLE)]),
            "r": Part(Collects, 1, {}, [("b", "default", SHUFFLE)]),
        }
    )
    world.run()
    [reader] = world.objects("r")
    assert sorted(map(number_of, reader.seen)) == list(range(COUNT))


def test_reader_receives_separate_copies_of_a_constant() -> None:
    class Constant(ReusesDict):
        def change(self, n: int) -> None:
            self.values["inner"] = {"n": 0}

        def send(self) -> None:
            self.emit([CONSTANT], tup_id=self.n)

    class Edits(Collects):
        def process(self, tup: Any) -> None:
            tup[0]["n"] += 1
            self.seen.append(copy.deepcopy(tup[0]))

    world = ExecutorHarness(
        {"s": Part(Constant, 1, {"default": ["v"]}), "r": Part(Edits, 1, {}, [("s", "default", SHUFFLE)])}
    )
    world.run()
    [reader] = world.objects("r")
    assert reader.seen == [{"n": 1, "many": [1]}] * COUNT


CONSTANT = {"n": 0, "many": [1]}
