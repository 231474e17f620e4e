"""Components for the DSL tests, at the top level of a module like a user's."""

from __future__ import annotations

from typing import Any

from heronry import BasicBolt, BatchBolt, Bolt, Spout, Stream


class Words(Spout):
    outputs = ["word", "line", Stream(fields=["problem"], name="errors"), Stream(["to"], "direct", direct=True)]

    def next_tuple(self) -> None:
        pass


class Count(Bolt):
    outputs = ["word", "count"]

    def process(self, tup: Any) -> None:
        pass


class Ticking(BasicBolt):
    outputs = ["word"]
    config = {"topology.tick.tuple.freq.ms": 500, "user.depth": 3}

    def process(self, tup: Any) -> None:
        pass


class Batch(BatchBolt):
    def process_batch(self, tuples: Any) -> None:
        pass


class Lazy(Spout):
    outputs = ["word"]


class Idle(Bolt):
    pass


class EvenOdd:
    def __init__(self, modulus: int = 2) -> None:
        self.modulus = modulus

    def prepare(self, context: Any, component: str, stream: str, target_tasks: list[int]) -> None:
        self.tasks = target_tasks

    def choose_tasks(self, values: Any) -> list[int]:
        return [self.tasks[values[0] % self.modulus]]
