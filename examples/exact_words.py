"""Word count with ``EFFECTIVELY_ONCE``: each line counts once, also when processes die.

    heron submit local examples/exact_words.py ExactWords -- LINES COUNTS

Reads the files of the folder LINES, including later ones, and writes the count of each word into the folder COUNTS, as
a file of JSON lines for each checkpoint and task. Kill any of its processes: all tasks return to the last checkpoint,
and each count appears once.
"""

from __future__ import annotations

import os
import sys
from typing import Any

from heronry import BasicBolt, Config, Grouping, Topology, Tuple
from heronry.connect.files import FileLines, JsonLinesSink


class Split(BasicBolt):
    """Split lines into words."""

    outputs = ("word",)

    def process(self, tup: Tuple) -> None:
        for word in tup.values[0].split():
            self.emit((word,))


class Count(BasicBolt):
    """Count each word in keyed state."""

    outputs = ("word", "count")

    def process(self, tup: Tuple) -> None:
        word: Any = tup.values[0]
        count = self.keyed.get(word, 0) + 1
        self.keyed[word] = count
        self.emit((word, count))


class ExactWords(Topology):
    """lines -> words -> counts -> files."""

    # Paths relative to the shell that submits: tasks run in a folder of their own.
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
