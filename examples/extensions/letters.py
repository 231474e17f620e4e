"""Words grouped by their first letter, with the grouping, serializer and packing of ``wordplay``.

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
    """Emit each word once."""

    outputs = ["word"]

    def initialize(self, config: dict[str, Any], context: Any) -> None:
        """Start with all words."""
        self.left = list(WORDS)

    def next_tuple(self) -> None:
        """Emit one word."""
        if self.left:
            self.emit([self.left.pop()])


class Tally(BasicBolt):
    """Count words and write the counts to ``OUTPUT/tally-<task>.json``."""

    config = {"topology.tick.tuple.freq.ms": 200}

    def initialize(self, config: dict[str, Any], context: Any) -> None:
        """Start without counts."""
        self.file = Path(config["user.output"], f"tally-{context.get_task_id()}.json")
        self.counts: Counter[str] = Counter()

    def process(self, tup: Any) -> None:
        """Count one word."""
        self.counts[tup.values[0]] += 1

    def process_tick(self, tup: Any) -> None:
        """Write the counts."""
        self.file.write_text(json.dumps(self.counts))


class Letters(Topology):
    """words -> tally, with one task for a to m and one for n to z."""

    config = {
        "topology.packing": "by_component",
        "topology.serializer": "json",
        "user.output": sys.argv[1] if len(sys.argv) > 1 else ".",
    }

    words = Words.spec()
    tally = Tally.spec(par=2, inputs={words: Grouping.custom("alphabet", other=1)})
