"""The five programs, as a user of Heronry writes them: ``heron submit local FILE NAME -- DATA OUTPUT``.

``by_hand.py``, ``on_duckdb.py`` and ``on_polars.py`` have the same programs.
"""

from __future__ import annotations

import sys

from heronry.streamlet import Builder, files, session, to_files, top_k, tumbling

DATA, OUTPUT = sys.argv[1:3] if len(sys.argv) > 2 else ("data", "out")
# A task reads one file after another, so two tasks differ in event time by the distance of their files.
A_DAY = 86_400


def is_word(word: str) -> bool:
    """Return True for words that are counted."""
    return len(word) > 1


#:  Count of every word of a text; Python splits the words.
words = Builder("words")
cut = (
    words.source(files(f"{DATA}/text", "text"), name="lines")
    .flat_map(str.split, name="cut")
    .filter(is_word, name="long")
)
counted = cut.map(str.lower, name="lower").key_by().count_by_key(name="counts", updates=False)
counted.sink(to_files(f"{OUTPUT}/output"), name="output")

#:  Cents of each page in each ten minutes.
windows = Builder("windows")
looked = windows.source(files(f"{DATA}/views", "parquet"), event_time="time", unit="ms", name="views")
paged = looked.key_by("page").window(tumbling(600), allowed_lateness=A_DAY)
paged.sum_by_key("cents", name="sums").sink(to_files(f"{OUTPUT}/output"), name="output")

#:  Clicks and purchases of one user within the same half hour.
join = Builder("join")
clicks = join.source(files(f"{DATA}/clicks", "parquet"), event_time="time", unit="ms", name="clicks")
bought = join.source(files(f"{DATA}/purchases", "parquet"), event_time="time", unit="ms", name="purchases")
half_hours = clicks.key_by("user").window(tumbling(1800), allowed_lateness=A_DAY)
half_hours.join(bought.key_by("user"), name="pairs").sink(to_files(f"{OUTPUT}/output"), name="output")

#:  Count of one user's views without a gap of more than ten minutes.
sessions = Builder("sessions")
seen = sessions.source(files(f"{DATA}/views", "parquet"), event_time="time", unit="ms", name="views")
visits = seen.key_by("user").window(session(600), allowed_lateness=A_DAY)
visits.count_by_key(name="visits").sink(to_files(f"{OUTPUT}/output"), name="output")

#:  The three largest amounts of each page.
topk = Builder("topk")
priced = topk.source(files(f"{DATA}/views", "parquet"), name="views").key_by("page")
greatest = priced.reduce_by_key(top_k(3), value="cents", name="greatest", updates=False)
greatest.sink(to_files(f"{OUTPUT}/output"), name="output")
