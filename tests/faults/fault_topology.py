"""Topology of the fault tests: lines -> words -> a sink that writes each word to a file before it acks.

    heron submit local tests/faults/fault_topology.py Faults -- '{"output": ..., "path": ...}'

The topology and the test share only these files in the output folder:

``sink-<task>-<pid>``      one row for each word, in the order of the acks; kill -9 may tear the last
``progress-<task>.json``   progress of a spout, replaced atomically a few times a second
``end``                    created by the test: the spouts stop emitting, and their progress says when all is acked
``slow``                   created by the test: while it exists, the sink sleeps over every word
"""

from __future__ import annotations

import json
import os
import re
import sys
import time
from collections import Counter, deque
from pathlib import Path
from typing import Any

import numpy as np

from heronry import BasicBolt, BatchBolt, Grouping, Spout, Topology

ROW = np.dtype([("number", "<u4"), ("index", "<u2"), ("word", "S26")])
LINES_PER_CALL = 64
SAVE_SECONDS = 0.2
SLOW_SECONDS = 0.002  # per word; a busy sink takes less than a hundredth of it
LOOK_EACH = 8  # words between two checks for the file ``slow``


def words_of(line: str) -> list[str]:
    """Return the words of a line."""
    return re.findall(r"[a-z']+", line.lower())


class Lines(Spout):
    """Spout that repeats the text until ``end`` exists; saved progress is below the first line that is not acked."""

    outputs = ["number", "line", "padding"]
    ahead = 2000  # new lines that a task may emit before it saves again

    def initialize(self, config: dict[str, Any], context: Any) -> None:
        """Continue from the saved progress."""
        self.task = context.get_task_id()
        peers = context.get_component_tasks(context.get_component_id())
        self.share, self.of = peers.index(self.task), len(peers)
        self.lines = Path(config["user.path"]).read_text().splitlines()
        self.padding = "x" * config["user.padding"]
        output = Path(config["user.output"])
        self.file, self.end_file = output / f"progress-{self.task}.json", output / "end"
        known = json.loads(self.file.read_text()) if self.file.exists() else {}
        self.done: int = known.get("done", self.share)
        self.end: int | None = known.get("end")
        self.starts: int = known.get("starts", 0) + 1
        self.failed: Counter[str] = Counter(known.get("failed", {}))
        self.next = self.done
        self.emitted_before: int = known.get("limit", self.share)  # by earlier processes of the task
        self.again: deque[int] = deque()
        self.acked: set[int] = set()
        self.activations: list[str] = known.get("activations", [])
        self.save()

    def next_tuple(self) -> None:
        """Emit failed lines first, then new ones."""
        self.find_end()
        for _ in range(LINES_PER_CALL):
            if self.again:
                number = self.again.popleft()
            elif self.end is None or self.next < self.end:
                number = self.take_new_line()
            else:
                return
            self.emit([number, self.lines[number % len(self.lines)], self.padding], tup_id=number)

    def find_end(self) -> None:
        """Fix the end once the file asks for it. Every line that any process of this task has emitted is below it."""
        if self.end is None and self.end_file.exists():
            self.end = max(self.next, self.emitted_before)
            self.save()

    def take_new_line(self) -> int:
        """Return the number of the next new line. It is below the saved limit."""
        number = self.next
        self.next += self.of
        if self.next > self.limit:
            self.save()
        return number

    def ack(self, tup_id: int) -> None:
        """Advance over every line that is done without a gap."""
        self.acked.add(tup_id)
        while self.done in self.acked:
            self.acked.remove(self.done)
            self.done += self.of
        if self.done == self.end or time.monotonic() >= self.save_at:
            self.save()

    def fail(self, tup_id: int, reason: Any) -> None:
        """Emit the line again."""
        if not self.failed[str(reason.kind)]:
            self.log.warning("line %d failed: %s", tup_id, reason)
        self.failed[str(reason.kind)] += 1
        self.again.append(tup_id)

    def activate(self) -> None:
        """Resume."""
        self.activations.append("activate")
        self.save()

    def deactivate(self) -> None:
        """Pause."""
        self.activations.append("deactivate")
        self.save()

    def save(self) -> None:
        """Replace the file atomically."""
        self.save_at = time.monotonic() + SAVE_SECONDS
        self.limit = max(self.next, self.emitted_before) + self.ahead * self.of
        text = json.dumps(
            {
                "done": self.done, "next": self.next, "limit": self.limit, "end": self.end,
                "share": self.share, "of": self.of, "starts": self.starts, "failed": self.failed,
                "activations": self.activations,
            }
        )  # fmt: skip
        temporary = self.file.with_suffix(f".{os.getpid()}")
        temporary.write_text(text)
        os.replace(temporary, self.file)


class Words(BasicBolt):
    """Bolt that splits lines into words."""

    outputs = ["number", "index", "word", "padding"]

    def process(self, tup: Any) -> None:
        """Emit each word with its position."""
        number, line, padding = tup.values
        for index, word in enumerate(words_of(line)):
            self.emit([number, index, word, padding])


class Sink(BatchBolt):
    """Bolt that writes tuples down, then acks (a BatchBolt acks when ``process_batch`` returns)."""

    def initialize(self, config: dict[str, Any], context: Any) -> None:
        """Open a file of this process."""
        output = Path(config["user.output"])
        self.slow_file = output / "slow"
        name = output / f"sink-{context.get_task_id()}-{os.getpid()}"
        self.descriptor = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)

    def process_batch(self, tuples: Any) -> None:
        """Append the rows; slowly while ``slow`` exists."""
        rows = np.empty(len(tuples), dtype=ROW)
        for field in ("number", "index", "word"):
            rows[field] = tuples.column(field)
        written = 0
        while written < len(rows) and self.slow_file.exists():
            for row in rows[written : written + LOOK_EACH]:
                time.sleep(SLOW_SECONDS)
                self.write(row.tobytes())
            written += LOOK_EACH
        self.write(rows[written:].tobytes())

    def write(self, data: bytes) -> None:
        """Write all data to the operating system: it outlives this process."""
        while data:
            data = data[os.write(self.descriptor, data) :]


# A test also imports this file, with other arguments on its command line.
_given: dict[str, Any] = json.loads(sys.argv[1]) if sys.argv[1:] and sys.argv[1].startswith("{") else {}
_tasks: dict[str, int] = _given.get("tasks", {})


class Faults(Topology):
    """Topology lines -> words -> sink."""

    config = {
        "topology.reliability.mode": "ATLEAST_ONCE",
        **_given.get("config", {}),
        "user.path": _given.get("path", ""),
        "user.output": _given.get("output", ""),
        "user.padding": _given.get("padding", 0),
    }

    lines = Lines.spec(par=_tasks.get("lines", 1))
    words = Words.spec(par=_tasks.get("words", 2), inputs={lines: Grouping.SHUFFLE})
    sink = Sink.spec(par=_tasks.get("sink", 2), inputs={words: Grouping.fields("word")})
