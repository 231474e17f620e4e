"""Program that counts lines of files at a URL by their last three digits: ``-- URL OPTIONS OUTPUT [grows]``."""

from __future__ import annotations

import sys

from heronry.streamlet import Builder, files, to_files

_url, _options, _output, *_more = sys.argv[1:] if len(sys.argv) > 3 else ("memory://x", "/options.json", "out")

counted = Builder("counted")
(
    counted.source(files(_url, "text", options=_options, grows=bool(_more)), name="lines", parallelism=2)
    .map(lambda line: int(line) % 1000, name="last_three")
    .count_by_key(key=lambda n: n, name="counts")
    .sink(to_files(_output), name="out")
)
