"""One task with a million keys, in this process: what a checkpoint costs its executor, and how long a load takes.

For a checkpoint of all keys and two behind it in which a tenth has changed: for how long the executor stands, for how
long its part is then encoded beside it, and the longest time that a record takes meanwhile: a loop counts words in the
same state, as the executor would, while another thread encodes.
"""

from __future__ import annotations

import threading
import time
from typing import Any

from heron_instance.core.state.keyed import KeyedState
from heron_instance.core.state.part_file import Snapshot, read_part
from heron_instance.core.values_codec import ValuesCodec
from heron_runtime.model.checkpoints import ALL_GROUPS, StatePart

MILLION = 1_000_000


def snapshot() -> dict[str, Any]:
    """The figures."""
    state, codec = KeyedState(ALL_GROUPS), ValuesCodec()
    for key in range(MILLION):
        state[f"key-{key}"] = key
    parts = []
    for turn in range(3):
        part, pieces, figures = _taken(state, turn, codec)
        parts.append({"changed": MILLION // (10 if turn else 1), "bytes": part.size, **figures})
        if turn == 0:
            load_ms = _load(part, b"".join(pieces), codec)
        for key in range(0, MILLION, 10):
            state[f"key-{key}"] = -key
    return {"figure": "snapshot", "keys": MILLION, "parts": parts, "load_all_ms": load_ms}


def _taken(state: KeyedState, turn: int, codec: ValuesCodec) -> tuple[StatePart, list[bytes], dict[str, Any]]:
    draft = StatePart("count", 1, 1, 1, turn + 1, turn, 0, "", ALL_GROUPS)
    began = time.perf_counter()
    taken = Snapshot(draft, (), state.take(turn + 1, turn), codec)
    pause_ms = 1000 * (time.perf_counter() - began)
    written: list[tuple[StatePart, list[bytes]]] = []
    writer = threading.Thread(target=lambda: written.append(taken.encode()))
    began = last = time.perf_counter()
    writer.start()
    longest, key = 0.0, 0
    while writer.is_alive():
        state[f"key-{key}"] += 1
        key = (key + 10) % MILLION
        now = time.perf_counter()
        longest, last = max(longest, now - last), now
    encode_ms = 1000 * (last - began)
    state.completed(turn + 1)
    figures = {"pause_ms": round(pause_ms), "encode_ms": round(encode_ms), "longest_record_ms": round(1000 * longest)}
    return *written[0], figures


def _load(part: StatePart, data: bytes, codec: ValuesCodec) -> int:
    def read(offset: int, size: int) -> bytes:
        return data[offset : offset + size]

    began = time.perf_counter()
    loaded = KeyedState(ALL_GROUPS)
    loaded.load(read_part(part, read, ALL_GROUPS, codec))
    load_ms = round(1000 * (time.perf_counter() - began))
    assert len(loaded) == MILLION
    return load_ms
