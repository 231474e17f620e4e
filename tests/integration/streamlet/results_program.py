"""Program that counts numbers in windows, in another process, and in buckets of a view: ``-- NUMBERS OUTPUT``."""

from __future__ import annotations

import sys

from heronry.streamlet import Builder, sequence, to_files, tumbling, view

_numbers, _output = (*sys.argv[1:3], "1000", "out")[:2]

results = Builder("results")
numbers = results.source(
    sequence(int(_numbers), rate=2000), event_time=lambda n: n / 100, name="numbers", parallelism=2
)
counts = numbers.window(tumbling(2), allowed_lateness=10).count_by_key(
    key=lambda n: n % 5, name="counts", parallelism=2
)
counts.sink(to_files(f"{_output}/windows"), name="windows")
counts.late().sink(to_files(f"{_output}/late"), name="late")
(
    counts.map(lambda row: row, name="carry", parallelism=1)
    .key_by("key")
    .reduce_by_key(lambda a, b: (*a, *b), value=lambda row: ((row.start, row.value),), updates=False, name="all")
    .sink(to_files(f"{_output}/all"), name="out")
)
running = numbers.key_by(lambda n: n % 7).count_by_key(name="sevens", parallelism=2)
running.sink(view("sevens", f"{_output}/view", bucket=20), name="view")
