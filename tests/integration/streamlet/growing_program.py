"""Program that counts lines of a growing folder by their last three digits: ``-- FOLDER OUTPUT``."""

from __future__ import annotations

import sys

from heronry.streamlet import Builder, files, to_files

_folder, _output = (*sys.argv[1:3], "in", "out")[:2]

growing = Builder("growing")
(
    growing.source(files(_folder, "text", grows=True), name="lines", parallelism=2)
    .filter(lambda line: line.isdigit(), name="digits")
    .map(lambda line: int(line) % 1000, name="last_three")
    .count_by_key(key=lambda n: n, name="counts")
    .sink(to_files(_output), name="out")
)
