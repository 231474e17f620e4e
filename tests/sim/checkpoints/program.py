"""Program of the checkpoint simulation (spouts with splits, a shuffle, keyed state, a sink) and its reference."""

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
    """Return True if the counting task cannot process this record: its only effect is a dead letter for each half."""
    return item[0] % 10 == 7


def process(state: MutableMapping[int, Any], item: Record, half: int) -> list[Output]:
    """Apply a half of a record to the state of the counting task; return the output."""
    return [(item[0], f"bad {half}")] if is_bad(item) else process_good(state, item, half)


def process_good(state: MutableMapping[int, Any], item: Record, half: int) -> list[Output]:
    """Apply a half of a good record; the halves arrive directly and through the relay, in any order.

    Some keys count and start again at 4, some sum in place, and some join the two halves: the first is kept, the second
    matches it, and the entry is deleted when it is empty. References never outlive the call, as the API requires.
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
    """Return state and output after each split has been read up to its position."""
    state: dict[int, Any] = {}
    output: Counter[Output] = Counter()
    for split in range(SPLITS):
        for position in range(positions.get(split, 0)):
            for half in (0, 1):
                output.update(process(state, record(split, position), half))
    return state, output


EVERYTHING = dict.fromkeys(range(SPLITS), RECORDS)
