"""Word count as a streamlet program: the same file runs online, over history and in a unit test.

    heron submit local examples/streamlet_word_count.py words -- PATH OUTPUT
    heron submit local examples/streamlet_word_count.py words --dry-run

PATH is a text file or a folder of text files. OUTPUT is a folder for the results: JSON lines, of which the last line of
a word has its count.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

from heronry.streamlet import Builder, files, to_files

_arguments = dict(enumerate(sys.argv[1:]))
TEXT = Path(_arguments.get(0, Path(__file__).parent / "data" / "northanger_abbey.txt"))
OUTPUT = Path(_arguments.get(1, "counts"))

words = Builder("words")
(
    words.source(files(TEXT, "text"), name="lines")
    .flat_map(lambda line: re.findall(r"[a-z']+", line.lower()), name="split")
    .key_by()
    .count_by_key(name="counts", parallelism=2)
    .sink(to_files(OUTPUT), name="output")
)
