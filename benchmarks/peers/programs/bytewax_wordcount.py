"""Tuned word count in Bytewax: 64 buckets of words, each a dictionary, a thousand words per batch.

``python -m bytewax.run bytewax_wordcount:flow``, or ``python -m bytewax.testing -p2 -w1 …`` for two processes.
"""

from __future__ import annotations

from zlib import crc32

import bytewax.operators as op
from bytewax.dataflow import Dataflow
from bytewax_source import NullSink, Source
from peer_load import Progress, word_maker

BUCKETS = [str(number) for number in range(64)]
progress: list[Progress] = []


class Count(op.StatefulBatchLogic):
    """Counts of one bucket."""

    def __init__(self, state: dict[str, int] | None) -> None:
        self._counts = state or {}
        if not progress:
            progress.append(Progress())

    def on_batch(self, words: list[str]) -> tuple[list[tuple[str, int]], bool]:
        """Count words; pass the counts on."""
        counts, found = self._counts, []
        for word in words:
            count = counts[word] = counts.get(word, 0) + 1
            found.append((word, count))
        progress[0].add(len(words))
        return found, False

    def snapshot(self) -> dict[str, int]:
        """Return the state for recovery, which is off."""
        return dict(self._counts)


flow = Dataflow("wordcount")
stream = op.input("words", flow, Source(word_maker))
stream = op.key_on("bucket", stream, lambda word: BUCKETS[crc32(word.encode()) & 63])
stream = op.stateful_batch("count", stream, Count)
op.output("nowhere", stream, NullSink())
