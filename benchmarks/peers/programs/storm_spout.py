"""Spout of words as a Storm user writes it with streamparse: one word per call."""

from __future__ import annotations

from typing import Any

from peer_load import word_maker
from streamparse import Spout


class WordSpout(Spout):
    """Spout that emits with an id."""

    outputs = ["word"]

    def initialize(self, conf: Any, ctx: Any) -> None:
        """Load the dictionary."""
        self.make, self.number = word_maker(1), 0

    def next_tuple(self) -> None:
        """Emit one word."""
        self.number += 1
        self.emit([self.make()], tup_id=self.number)


if __name__ == "__main__":
    WordSpout().run()
