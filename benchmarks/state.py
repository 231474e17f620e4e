"""What state costs: ``python -m benchmarks.state [--pairs 3] [--seconds 10]`` prints a line of JSON for each figure.

* cost: word count with checkpoints each 10 s beside the same at most once, in alternation: CPU per tuple, and the
  quotient of the medians;
* bubble: for how long spouts are silent at a checkpoint, at 2, 8 and 32 tasks, 1 000 tuples a second;
* snapshot: a task with a million keys of which a tenth has changed: how long its executor stands, what it writes, and
  how long it takes to load them again.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Iterator
from typing import Any

from benchmarks.cluster import Cluster
from benchmarks.run import Options, prepared, run
from heron_control.inspection.inspector import asker_of
from heron_instance.core.state.keyed import KeyedState
from heron_instance.core.state.part_file import encode_part, read_part
from heron_instance.core.values_codec import ValuesCodec
from heron_runtime.model.checkpoints import ALL_GROUPS, Part
from heron_runtime.state import open_address
from heron_runtime.state.local import local_store
from heron_runtime.state.topologies import read_topology
from heron_runtime.wire.master import CheckpointSummary

MODE, INTERVAL = "topology.reliability.mode", "topology.stateful.checkpoint.interval.secs"
EXACTLY, AT_MOST = "EFFECTIVELY_ONCE", "ATMOST_ONCE"
MILLION = 1_000_000
LOOK_SECONDS = 0.1


def cost(pairs: int, seconds: float) -> dict[str, Any]:
    """CPU per tuple in both modes."""
    found: dict[str, list[float]] = {AT_MOST: [], EXACTLY: []}
    for _ in range(pairs):
        for mode, figures in found.items():
            options = Options("wordcount", seconds=seconds, overrides={MODE: mode, INTERVAL: 10.0})
            figures.append(run(options)["cpu_us_per_tuple"])
    quotient = statistics.median(found[EXACTLY]) / statistics.median(found[AT_MOST])
    return {"figure": "cost", "cpu_us_per_tuple": found, "quotient": round(quotient, 3)}


def bubble(tasks: int, seconds: float) -> dict[str, Any]:
    """Bubbles and durations of checkpoints at a quiet rate."""
    options = Options("wordcount", tasks=tasks // 2, rate=1_000, overrides={MODE: EXACTLY, INTERVAL: 0.5})
    cluster = Cluster()
    try:
        arguments, _ = prepared(cluster, options, cluster.home / "board")
        cluster.submit(arguments, {})
        seen = {summary.number: summary for summary in _checkpoints(cluster, seconds) if summary.number}
    finally:
        cluster.close()
    bubbles = sorted(summary.bubble_ms for summary in seen.values())
    durations = sorted(summary.duration_ms for summary in seen.values())
    return {
        "figure": "bubble", "tasks": tasks, "checkpoints": len(seen),
        "bubble_ms": _spread(bubbles), "duration_ms": _spread(durations),
    }  # fmt: skip


def _checkpoints(cluster: Cluster, seconds: float) -> Iterator[CheckpointSummary]:
    """The last complete checkpoint, again and again."""
    store = open_address(local_store(cluster.home))
    store.open()
    try:
        record = read_topology(store, cluster.name)
        asker = asker_of(record)
        over = time.monotonic() + seconds
        while time.monotonic() < over:
            master = asker.everybody(record).master
            if master is not None:
                yield master.tasks_state.last
            time.sleep(LOOK_SECONDS)
    finally:
        store.close()


def _spread(values: list[float]) -> dict[str, float] | None:
    if not values:
        return None
    return {"median": round(statistics.median(values), 1), "most": round(values[-1], 1)}


def snapshot() -> dict[str, Any]:
    """One task, a million keys."""
    state, codec = KeyedState(ALL_GROUPS), ValuesCodec()
    for key in range(MILLION):
        state[f"key-{key}"] = key
    parts = []
    for turn in range(3):
        part, pieces, pause_ms = _taken(state, turn, codec)
        parts.append({"changed": len(range(0, MILLION, 10 if turn else 1)), "pause_ms": pause_ms, "bytes": part.size})
        if turn == 0:
            load_ms = _load(part, b"".join(pieces), codec)
        for key in range(0, MILLION, 10):
            state[f"key-{key}"] = -key
    return {"figure": "snapshot", "keys": MILLION, "parts": parts, "load_all_ms": load_ms}


def _taken(state: KeyedState, turn: int, codec: ValuesCodec) -> tuple[Part, list[bytes], int]:
    draft = Part("count", 1, 1, 1, turn + 1, turn, 0, "", ALL_GROUPS)
    began = time.perf_counter()
    part, pieces = encode_part(draft, (), state.take(turn + 1, turn), codec)
    pause_ms = round(1000 * (time.perf_counter() - began))
    state.completed(turn + 1)
    return part, pieces, pause_ms


def _load(part: Part, data: bytes, codec: ValuesCodec) -> int:
    def read(offset: int, size: int) -> bytes:
        return data[offset : offset + size]

    began = time.perf_counter()
    loaded = KeyedState(ALL_GROUPS)
    loaded.load(read_part(part, read, ALL_GROUPS, codec))
    load_ms = round(1000 * (time.perf_counter() - began))
    assert len(loaded) == MILLION
    return load_ms


def main() -> None:
    """Print all figures."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.state", description=__doc__)
    parser.add_argument("--pairs", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=10.0)
    options = parser.parse_args()
    print(json.dumps(snapshot()), flush=True)
    for tasks in (2, 8, 32):
        print(json.dumps(bubble(tasks, options.seconds)), flush=True)
    print(json.dumps(cost(options.pairs, options.seconds)), flush=True)


if __name__ == "__main__":
    main()
