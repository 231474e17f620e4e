"""Count the words of the errors in logs. Files may be compressed: ``.gz .bz2 .xz .zst``.

heron submit local examples/cookbook/word_count.py words -- DATA OUTPUT
"""

import re
import sys

from heronry.streamlet import Builder, files, to_files

DATA, OUTPUT = sys.argv[1:3] if len(sys.argv) > 2 else ("examples/cookbook/data", "out")

words = Builder("words")
(
    words.source(files(f"{DATA}/logs", "text"), name="lines")
    .filter(lambda line: " ERROR " in line, name="errors")
    .flat_map(lambda line: re.findall("[a-z]+", line.partition(" ERROR ")[2]), name="split")
    .key_by()
    .count_by_key(name="counts", updates=False)
    .sink(to_files(f"{OUTPUT}/words"), name="words_out")
)
