"""Words dealt out by their first letter: the grouping, the serializer and the packing are those of ``wordplay``.

heron submit local examples/extensions/letters.py Letters -- OUTPUT
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from pathlib import Path
from typing import Any

from heronry import BasicBolt, Grouping, Spout, Topology

WORDS = ["apple", "banana", "fig", "kiwi", "nut", "orange", "pear", "Zucchini", "42"] * 100


class Words(Spout):
    """Emits each word once."""

    outputs = ["word"]

    def initialize(self, config: dict[str, Any], context: Any) -> None:
        """Begin at the first."""
        self.left = list(WORDS)

    def next_tuple(self) -> None:
        """One word."""
        if self.left:
            self.emit([self.left.pop()])


class Tally(BasicBolt):
    """Counts the words it gets, into ``OUTPUT/tally-<task>.json``."""

    config = {"topology.tick.tuple.freq.ms": 200}

    def initialize(self, config: dict[str, Any], context: Any) -> None:
        """Nothing is counted yet."""
        self.file = Path(config["user.output"], f"tally-{context.get_task_id()}.json")
        self.counts: Counter[str] = Counter()

    def process(self, tup: Any) -> None:
        """Count."""
        self.counts[tup.values[0]] += 1

    def process_tick(self, tup: Any) -> None:
        """Show how far it is."""
        self.file.write_text(json.dumps(self.counts))


class Letters(Topology):
    """Two tasks: a to m, n to z."""

    config = {
        "topology.packing": "by_component",
        "topology.serializer": "json",
        "user.output": sys.argv[1] if len(sys.argv) > 1 else ".",
    }

    words = Words.spec()
    tally = Tally.spec(par=2, inputs={words: Grouping.custom("alphabet", other=1)})
