"""Word count over a file with ``ATLEAST_ONCE``: a reliable spout that stores its offset, a splitter and a counter.

    heron submit local examples/word_count.py WordCount --name words -- PATH OUTPUT [ROUNDS]

Each line is a tuple whose message id is its number. The spout emits failed lines again. From time to time it writes the
number below which every line is acked to ``OUTPUT/offset-<task>``, where a restarted spout continues. Each counter
writes ``OUTPUT/counts-<task>.json`` at a tick. The spout reads the text ROUNDS times (default 1; 0: without end).
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections import Counter, deque
from pathlib import Path
from typing import Any

from heronry import BasicBolt, Grouping, Spout, Topology

TEXT = Path(__file__).parent / "data" / "northanger_abbey.txt"
LINES_PER_CALL = 64
SAVE_EVERY = 10_000


def write_atomically(path: Path, text: str) -> None:
    """Replace a file in one step, so that readers see the old or the new text."""
    temporary = path.with_suffix(".tmp")
    temporary.write_text(text)
    os.replace(temporary, path)


class LineSpout(Spout):
    """Emit the lines of ``user.path``. Of n tasks, each emits every n-th line."""

    outputs = ["number", "line"]

    def initialize(self, config: dict[str, Any], context: Any) -> None:
        """Read the text and continue at the saved offset."""
        peers = context.get_component_tasks(context.get_component_id())
        self.share, self.of = peers.index(context.get_task_id()), len(peers)
        self.lines = Path(config["user.path"]).read_text().splitlines()
        self.rounds = config.get("user.rounds", 1)
        self.offset_file = Path(config["user.output"], f"offset-{context.get_task_id()}")
        self.done = int(self.offset_file.read_text()) if self.offset_file.exists() else self.share
        self.saved = self.next = self.done
        self.again: deque[int] = deque()
        self.acked: set[int] = set()

    def next_tuple(self) -> None:
        """Emit failed lines, then new ones, up to 64 in a call."""
        for _ in range(LINES_PER_CALL):
            if self.again:
                number = self.again.popleft()
            elif self.rounds == 0 or self.next < self.rounds * len(self.lines):
                number = self.next
                self.next += self.of
            else:
                return
            self.emit([number, self.lines[number % len(self.lines)]], tup_id=number)

    def ack(self, tup_id: int) -> None:
        """Advance the offset over all lines that are acked without a gap."""
        self.acked.add(tup_id)
        while self.done in self.acked:
            self.acked.remove(self.done)
            self.done += self.of
        if self.done - self.saved >= SAVE_EVERY:
            self.save()

    def fail(self, tup_id: int, reason: Any) -> None:
        """Emit the line again later."""
        self.log.info("line %d failed (%s): emitting it again", tup_id, reason.kind)
        self.again.append(tup_id)

    def deactivate(self) -> None:
        """Save the offset while the spout is paused."""
        self.save()

    def close(self) -> None:
        """Save the offset at the end."""
        self.save()

    def save(self) -> None:
        """Write the offset to its file."""
        write_atomically(self.offset_file, str(self.done))
        self.saved = self.done


class SplitBolt(BasicBolt):
    """Split lines into lower-case words. BasicBolt anchors and acks."""

    outputs = ["word"]

    def process(self, tup: Any) -> None:
        """Emit each word."""
        for word in re.findall(r"[a-z']+", tup.values[1].lower()):
            self.emit([word])


class CountBolt(BasicBolt):
    """Count words, and write the counts at a tick if they changed."""

    outputs = ["word", "count"]
    config = {"topology.tick.tuple.freq.secs": 0.5}

    def initialize(self, config: dict[str, Any], context: Any) -> None:
        """Start without counts. After a crash, only unacked words are emitted again."""
        self.counts: Counter[str] = Counter()
        self.file = Path(config["user.output"], f"counts-{context.get_task_id()}.json")
        self.changed = False

    def process(self, tup: Any) -> None:
        """Count one word."""
        self.counts[tup.values[0]] += 1
        self.changed = True

    def process_tick(self, tup: Any) -> None:
        """Write the counts."""
        if self.changed:
            write_atomically(self.file, json.dumps(self.counts))
            self.changed = False


class WordCount(Topology):
    """lines -> words -> counts."""

    _arguments = dict(enumerate(sys.argv[1:]))
    config = {
        "topology.reliability.mode": "ATLEAST_ONCE",
        # Paths relative to the shell that submits: tasks run in a folder of their own.
        "user.path": os.path.abspath(_arguments.get(0, TEXT)),
        "user.output": os.path.abspath(_arguments.get(1, ".")),
        "user.rounds": int(_arguments.get(2, 1)),
    }

    lines = LineSpout.spec()
    words = SplitBolt.spec(par=2, inputs={lines: Grouping.SHUFFLE})
    counts = CountBolt.spec(par=2, inputs={words: Grouping.fields("word")})
