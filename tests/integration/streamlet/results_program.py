"""Numbers counted in windows, the results gathered in another process: ``-- NUMBERS OUTPUT``."""

from __future__ import annotations

import sys

from heronry.streamlet import Builder, sequence, to_files, tumbling

_numbers, _output = (*sys.argv[1:3], "1000", "out")[:2]

results = Builder("results", {"topology.message.timeout.secs": 6})
counts = (
    results.source(sequence(int(_numbers), rate=2000), event_time=lambda n: n / 100, name="numbers", parallelism=2)
    .window(tumbling(2), allowed_lateness=10)
    .count_by_key(key=lambda n: n % 5, name="counts", parallelism=2)
)
(
    counts.map(lambda row: row, name="carry", parallelism=1)
    .key_by("key")
    .reduce_by_key(lambda a, b: (*a, *b), value=lambda row: ((row.start, row.value),), updates=False, name="all")
    .sink(to_files(_output), name="out")
)
counts.late().sink(to_files(f"{_output}-late"), name="late")
