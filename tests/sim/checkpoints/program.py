"""The program of these simulations: spouts with splits, a shuffle, keyed state, a sink; and what it must lead to."""

from __future__ import annotations

from collections import Counter
from collections.abc import MutableMapping
from typing import Any

SPLITS, RECORDS, KEYS = 3, 22, 10
SPOUT, RELAY, COUNT, SINK = "spout", "relay", "count", "sink"
EDGES = ((SPOUT, RELAY), (SPOUT, COUNT), (RELAY, COUNT), (COUNT, SINK))

Record = tuple[int, int]  # its number, its key
Output = tuple[int, str]


def record(split: int, position: int) -> Record:
    return split * 1000 + position, (split * 5 + position * 3) % KEYS


def is_bad(item: Record) -> bool:
    """Whether the counting task cannot process this record: it has no effect but a letter for each half."""
    return item[0] % 10 == 7


def process(state: MutableMapping[int, Any], item: Record, half: int) -> list[Output]:
    """What a half of a record does to the state of the counting task, and what comes of it."""
    return [(item[0], f"bad {half}")] if is_bad(item) else process_good(state, item, half)


def process_good(state: MutableMapping[int, Any], item: Record, half: int) -> list[Output]:
    """A record reaches the counting task twice, straight and through the relay, in any order.

    Some keys count and start again at 4, some sum in place, and some join the two halves: the first is kept, the second
    finds it, and the entry goes when it is empty. References never outlive the call, as users are told.
    """
    number, key = item
    if key % 4 == 0:
        count = state.get(key, 0) + 1
        if count == 4:
            del state[key]
        else:
            state[key] = count
        return [(number, f"half {half}")]
    if key % 2 == 0:
        sums = state.setdefault(key, [0, 0])
        sums[0] += 1
        sums[1] += number
        return [(number, f"half {half}")]
    waiting = state.setdefault(key, [])
    if number in waiting:
        waiting.remove(number)
        if not waiting:
            del state[key]
        return [(number, "joined")]
    waiting.append(number)
    waiting.sort()
    return []


def reference(positions: dict[int, int]) -> tuple[dict[int, Any], Counter[Output]]:
    """State and output when each split has been read up to its position."""
    state: dict[int, Any] = {}
    output: Counter[Output] = Counter()
    for split in range(SPLITS):
        for position in range(positions.get(split, 0)):
            for half in (0, 1):
                output.update(process(state, record(split, position), half))
    return state, output


EVERYTHING = dict.fromkeys(range(SPLITS), RECORDS)
