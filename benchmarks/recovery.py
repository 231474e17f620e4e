"""Recovery times of a topology that keeps state: 100 000 keys in each of two tasks, exactly once.

* restore: ``kill -9`` of a counting task's process; seconds until it processes again in a new process, and the longest
  time for which no task processed;
* update: ``heron update`` from two counting tasks to four; the longest time for which no task processed.

Checkpoints are taken every two seconds, at 2 000 numbers per second. The driver reads a file that the tasks write
(``kept_topology.py``) every millisecond.
"""

from __future__ import annotations

import mmap
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.cluster import Cluster
from benchmarks.kept_topology import ROW

KEYS, RATE, TASKS, ROWS = 200_000, 2_000, 2, 64
PATIENCE_SECONDS = 180.0
LOOK_SECONDS = 0.001


class TooLate(Exception):
    """Timeout of a wait."""


@dataclass
class Watch:
    """Progress of the bolt's tasks, observed by a thread: by task, and the longest silence."""

    board: mmap.mmap
    rows: dict[int, tuple[int, int, int]] = field(default_factory=dict)
    longest_us: int = 0
    ended: bool = False

    def run(self) -> None:
        """Observe until ``ended``."""
        newest = 0
        while not self.ended:
            for task in range(ROWS):
                self.rows[task] = ROW.unpack_from(self.board, task * ROW.size)
            now = max(at for _, at, _ in self.rows.values())
            if newest:
                self.longest_us = max(self.longest_us, now - newest)
            newest = now
            time.sleep(LOOK_SECONDS)

    def keys(self) -> int:
        """Return the number of keys of all tasks."""
        return sum(keys for _, _, keys in self.rows.values())

    def of(self, pid: int) -> int:
        """Return the task of a process; 0 if there is none."""
        return next((task for task, (owner, _, _) in self.rows.items() if owner == pid), 0)


def recovery() -> Iterator[dict[str, Any]]:
    """Yield both figures of one topology."""
    cluster = Cluster()
    board_file = cluster.home / "board"
    board_file.write_bytes(bytes(ROW.size * ROWS))
    with board_file.open("r+b") as file:
        watch = Watch(mmap.mmap(file.fileno(), 0))
    thread = threading.Thread(target=watch.run, daemon=True)
    try:
        _submit(cluster, board_file)
        thread.start()
        _until(lambda: watch.keys() >= KEYS, f"{KEYS} keys are there")
        yield _restore(cluster, watch)
        yield _update(cluster, watch)
    finally:
        watch.ended = True
        cluster.close()


def _submit(cluster: Cluster, board: Path) -> None:
    config = {
        "user.board": str(board), "user.keys": KEYS, "user.rate": RATE,
        "topology.stateful.checkpoint.interval.secs": 2.0,
    }  # fmt: skip
    cluster.submit({"name": cluster.name, "tasks": TASKS, "config": config}, {}, "benchmarks/kept_topology.py")


def _restore(cluster: Cluster, watch: Watch) -> dict[str, Any]:
    victim = next(p for p in cluster.processes() if p.get("component") == "count")
    task, pid = victim["task"], victim["pid"]
    watch.longest_us, began = 0, time.perf_counter()
    os.kill(pid, signal.SIGKILL)
    _until(lambda: watch.rows[task][0] not in (0, pid), "the task processes again")
    seconds = watch.rows[task][1] / 1e6 - began
    return {
        "figure": "restore", "keys": KEYS, "tasks": TASKS, "processing_again_s": round(seconds, 2),
        "longest_silence_s": round(watch.longest_us / 1e6, 2),
    }  # fmt: skip


def _update(cluster: Cluster, watch: Watch) -> dict[str, Any]:
    before = {row[0] for row in watch.rows.values() if row[0]}
    watch.longest_us, began = 0, time.perf_counter()
    cluster.heron("update", "local", cluster.name, "--component-parallelism", "count:4")
    seconds = time.perf_counter() - began
    _until(lambda: len({row[0] for row in watch.rows.values() if row[0]} - before) >= TASKS, "new tasks process")
    return {
        "figure": "update", "keys": KEYS, "tasks": [TASKS, 4], "command_s": round(seconds, 2),
        "longest_silence_s": round(watch.longest_us / 1e6, 2),
    }  # fmt: skip


def _until(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        if time.monotonic() > deadline:
            raise TooLate(f"not within {PATIENCE_SECONDS:.0f} s: {what}")
        time.sleep(LOOK_SECONDS)
