"""Topology that sums numbers by key; a tenth are bad, which shows only after sum and output have changed.

    heron submit local letters_topology.py Letters -- FOLDER

numbers -> total (fields) -> sums; total["bad"] -> letters.
"""

from __future__ import annotations

import os
import sys
from typing import Any

from heronry import BasicBolt, Config, Grouping, Spout, Topology, Tuple
from heronry.connect.files import JsonLinesSink

NUMBERS, KEYS, EACH, BAD = 4_000, 17, 10, 3


class Numbers(Spout):
    """Spout that emits each number once, with its key."""

    outputs = ("key", "number")

    def splits(self) -> list[tuple[str, int]]:
        return [("all", 0)]

    def next_tuple(self) -> None:
        if "all" in self.owned_splits():
            first = self.keyed.get("all", 0)
            last = min(first + 20, NUMBERS)
            self.emit_many([(f"k{number % KEYS}", number) for number in range(first, last)])
            self.keyed["all"] = last


class Total(BasicBolt):
    """Bolt that sums the numbers of each key, and counts all its numbers in the task's own state."""

    outputs = ("key", "sum")
    dead_letters = "bad"

    def process(self, tup: Tuple) -> None:
        key, number = tup.values
        total = self.keyed.setdefault(key, [0])
        total[0] += number
        self.state["seen"] = self.state.get("seen", 0) + 1
        self.emit((key, total[0]))
        if number % EACH == BAD:
            raise ValueError(f"{number} is bad")

    def on_checkpoint_complete(self, checkpoint: int) -> None:
        self.log.info("seen %d", self.state.get("seen", 0))


class Letters(Topology):
    """Topology with a checkpoint every half second."""

    _folder = os.path.abspath(sys.argv[1] if len(sys.argv) > 1 else "letters")
    config = {
        Config.TOPOLOGY_RELIABILITY_MODE: Config.EFFECTIVELY_ONCE,
        Config.TOPOLOGY_STATEFUL_CHECKPOINT_INTERVAL_SECS: 0.5,
    }
    numbers = Numbers.spec(par=1)
    total = Total.spec(par=2, inputs={numbers: Grouping.fields("key")})
    sums = JsonLinesSink.spec(inputs={total: Grouping.SHUFFLE}, config={"user.sink.folder": f"{_folder}/sums"})
    letters = JsonLinesSink.spec(
        inputs={total["bad"]: Grouping.SHUFFLE}, config={"user.sink.folder": f"{_folder}/letters"}
    )


def truth() -> tuple[dict[str, list[int]], list[int]]:
    """Return the sums of each key, in order, and the bad numbers."""
    sums: dict[str, list[int]] = {}
    for number in range(NUMBERS):
        if number % EACH != BAD:
            before = sums.setdefault(f"k{number % KEYS}", [])
            before.append((before[-1] if before else 0) + number)
    return sums, list(range(BAD, NUMBERS, EACH))


def letter_of(found: dict[str, Any]) -> int:
    """Return the number in a dead letter after checking that its fields are complete."""
    key, number = found["values"]
    assert key == f"k{number % KEYS}"
    assert (found["component"], found["source"], found["stream"]) == ("total", "numbers", "default")
    assert found["error"] == f"ValueError: {number} is bad"
    assert found["traceback"].rstrip().endswith(found["error"])
    return int(number)
