"""Word count over a file, at least once: a reliable spout that remembers its offset, a splitter, a counter.

    heron submit local examples/word_count.py WordCount --name words -- PATH OUTPUT [ROUNDS]

Each line is a tuple whose message id is its number. A line that fails is emitted again; the number below which every
line is acked is written to ``OUTPUT/offset-<task>`` now and then (never once a tuple), so that a restarted spout goes
on from there. Each counter writes ``OUTPUT/counts-<task>.json`` on a tick. ROUNDS (default 1) reads the text that
often; 0 is for ever.
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
    """A reader sees the old text or the new, never a part."""
    temporary = path.with_suffix(".tmp")
    temporary.write_text(text)
    os.replace(temporary, path)


class LineSpout(Spout):
    """Emits the lines of ``user.path``; with several tasks, each takes every n-th line."""

    outputs = ["number", "line"]

    def initialize(self, config: dict[str, Any], context: Any) -> None:
        """Read the text and go on after the last saved offset."""
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
        """Emit failed lines first, then new ones, a handful per call."""
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
        """Move the offset over every line that is done without a gap."""
        self.acked.add(tup_id)
        while self.done in self.acked:
            self.acked.remove(self.done)
            self.done += self.of
        if self.done - self.saved >= SAVE_EVERY:
            self.save()

    def fail(self, tup_id: int, reason: Any) -> None:
        """Emit the line again."""
        self.log.info("line %d failed (%s): emitting it again", tup_id, reason.kind)
        self.again.append(tup_id)

    def deactivate(self) -> None:
        """A good moment to remember where we are."""
        self.save()

    def close(self) -> None:
        """The last one."""
        self.save()

    def save(self) -> None:
        """Remember the offset."""
        write_atomically(self.offset_file, str(self.done))
        self.saved = self.done


class SplitBolt(BasicBolt):
    """Lines to lower-case words; anchoring and acks are BasicBolt's."""

    outputs = ["word"]

    def process(self, tup: Any) -> None:
        """One tuple for each word."""
        for word in re.findall(r"[a-z']+", tup.values[1].lower()):
            self.emit([word])


class CountBolt(BasicBolt):
    """Counts each word and writes the counts on every tick that finds new ones."""

    outputs = ["word", "count"]
    config = {"topology.tick.tuple.freq.secs": 0.5}

    def initialize(self, config: dict[str, Any], context: Any) -> None:
        """Start from nothing: what was counted before a crash comes again only if it was not acked."""
        self.counts: Counter[str] = Counter()
        self.file = Path(config["user.output"], f"counts-{context.get_task_id()}.json")
        self.changed = False

    def process(self, tup: Any) -> None:
        """Count one word."""
        self.counts[tup.values[0]] += 1
        self.changed = True

    def process_tick(self, tup: Any) -> None:
        """Let others see the counts."""
        if self.changed:
            write_atomically(self.file, json.dumps(self.counts))
            self.changed = False


class WordCount(Topology):
    """lines -> words -> counts."""

    _arguments = dict(enumerate(sys.argv[1:]))
    config = {
        "topology.reliability.mode": "ATLEAST_ONCE",
        # Paths as the shell that submits sees them: tasks run in a folder of their own.
        "user.path": os.path.abspath(_arguments.get(0, TEXT)),
        "user.output": os.path.abspath(_arguments.get(1, ".")),
        "user.rounds": int(_arguments.get(2, 1)),
    }

    lines = LineSpout.spec()
    words = SplitBolt.spec(par=2, inputs={lines: Grouping.SHUFFLE})
    counts = CountBolt.spec(par=2, inputs={words: Grouping.fields("word")})
