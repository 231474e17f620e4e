"""Word count in PyFlink's DataStream API on its local cluster.

Numbers (JVM), words (Python), keyed count (Python), discarding sink (JVM). ``FLINK_MODE`` is process (Flink's default)
or thread.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from typing import Any

os.environ["PATH"] = os.path.dirname(sys.executable) + ":" + os.environ["PATH"]

from peer_load import PARALLEL, TUPLES, Progress, word_maker
from pyflink.common import Configuration, Types, WatermarkStrategy
from pyflink.datastream import KeyedProcessFunction, MapFunction, StreamExecutionEnvironment
from pyflink.datastream.connectors.number_seq import NumberSequenceSource
from pyflink.java_gateway import get_gateway


class Words(MapFunction):
    """Map of each number to a word."""

    def open(self, runtime_context: Any) -> None:
        """Load the dictionary."""
        self.make = word_maker(id(runtime_context))

    def map(self, value: int) -> str:
        """Return a word."""
        return self.make()


class Count(KeyedProcessFunction):
    """Count in a plain dictionary, like a bolt."""

    def open(self, runtime_context: Any) -> None:
        """Start at zero."""
        self.counts: dict[str, int] = {}
        self.progress = Progress()

    def process_element(self, value: str, ctx: Any) -> Iterator[tuple[str, int]]:
        """Count one word."""
        count = self.counts[value] = self.counts.get(value, 0) + 1
        self.progress.add()
        yield value, count

    def close(self) -> None:
        """Record the final progress."""
        self.progress.finish()


settings = Configuration()
settings.set_string("python.execution-mode", os.environ.get("FLINK_MODE", "process"))
settings.set_string("python.executable", sys.executable)
settings.set_string("python.client.executable", sys.executable)
environment = StreamExecutionEnvironment.get_execution_environment(settings)
environment.set_parallelism(PARALLEL)
numbers = NumberSequenceSource(1, TUPLES * PARALLEL)
stream = environment.from_source(numbers, WatermarkStrategy.no_watermarks(), "numbers")
words = stream.map(Words(), output_type=Types.STRING()).key_by(lambda word: word, key_type=Types.STRING())
counts = words.process(Count(), output_type=Types.TUPLE([Types.STRING(), Types.LONG()]))
nowhere = get_gateway().jvm.org.apache.flink.streaming.api.functions.sink.v2.DiscardingSink()
counts._j_data_stream.sinkTo(nowhere)
environment.execute("wordcount")
