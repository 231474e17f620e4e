"""Word count of a novel online, as a Spark batch over history, and as the merged view of both.

    heron submit local examples/pipeline_words.py words -- OUTPUT TEXT      # online; also fills OUTPUT/archive
    heron submit spark examples/pipeline_words.py words --output-path OUTPUT/batch -- OUTPUT TEXT
    heron pipeline run examples/pipeline_words.py words --to TIME -- OUTPUT TEXT  # the batch owns times before TIME

OUTPUT is a folder for results and TEXT the novel, both as absolute paths, since tasks run in folders of their own. Line
n of the novel has the event time of second n of 1 January 2026, so there is a past and a present. ``make
demo-pipeline`` runs all three and compares them.
"""

from __future__ import annotations

import re
import sys
from functools import cache
from pathlib import Path
from typing import Any

from heronry.streamlet import Builder, archive, sequence, to_files, view

_arguments = dict(enumerate(sys.argv[1:]))
OUTPUT = Path(_arguments.get(0, "pipeline-words"))
TEXT = Path(_arguments.get(1, Path(__file__).parent / "data" / "northanger_abbey.txt"))
NEW_YEAR = 1_767_225_600  # seconds since 1970
BUCKET_SECONDS = 600


@cache
def lines() -> list[str]:
    """Return the lines of the novel, which is read once in each process."""
    return TEXT.read_text().splitlines()


def line(number: int) -> dict[str, Any]:
    """Return a line with its event time."""
    return {"time": NEW_YEAR + number, "text": lines()[number]}


def split(record: dict[str, Any]) -> list[str]:
    """Return the words of a line in lower case."""
    return re.findall(r"[a-z']+", record["text"].lower())


words = Builder("words")
written = words.source(sequence(len(lines()), line), event_time="time", name="lines")
written.sink(archive(OUTPUT / "archive"), name="archive")
counts = written.flat_map(split, name="split").key_by().count_by_key(name="counts", updates=False, parallelism=2)
counts.sink(to_files(OUTPUT / "online"), name="output")
counts.sink(view("words", OUTPUT / "view", bucket=BUCKET_SECONDS), name="view")
