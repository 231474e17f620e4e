"""Word count whose state is kept: every line counts once, whatever dies while it is read.

    heron submit local examples/exact_words.py ExactWords -- LINES COUNTS

Reads the files of the folder LINES, and those that come, and writes each word's count into the folder COUNTS, a file
of JSON lines for each checkpoint and task. Kill any of its processes: all tasks go on from the last checkpoint, and
each count appears once.
"""

from __future__ import annotations

import os
import sys
from typing import Any

from heronry import BasicBolt, Config, Grouping, Topology, Tuple
from heronry.connect.files import FileLines, JsonLinesSink


class Split(BasicBolt):
    """Lines to words."""

    outputs = ("word",)

    def process(self, tup: Tuple) -> None:
        for word in tup.values[0].split():
            self.emit((word,))


class Count(BasicBolt):
    """Words to their counts so far, which are kept."""

    outputs = ("word", "count")

    def process(self, tup: Tuple) -> None:
        word: Any = tup.values[0]
        count = self.keyed.get(word, 0) + 1
        self.keyed[word] = count
        self.emit((word, count))


class ExactWords(Topology):
    """lines -> words -> counts -> files."""

    # Paths as the shell that submits sees them: tasks run in a folder of their own.
    _lines, _counts = (os.path.abspath(path) for path in (sys.argv[1:] + ["lines", "counts"][len(sys.argv) - 1 :]))
    config = {
        Config.TOPOLOGY_RELIABILITY_MODE: Config.EFFECTIVELY_ONCE,
        Config.TOPOLOGY_STATEFUL_CHECKPOINT_INTERVAL_SECS: 2.0,
        Config.TOPOLOGY_STMGRS: 2,
    }
    lines = FileLines.spec(par=2, config={"user.files.folder": _lines})
    words = Split.spec(par=2, inputs=[lines])
    count = Count.spec(par=2, inputs={words: Grouping.fields("word")})
    counts = JsonLinesSink.spec(par=2, inputs={count: Grouping.SHUFFLE}, config={"user.sink.folder": _counts})
