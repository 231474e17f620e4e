"""Views by page that can be asked while they are counted: a view, by buckets of an hour.

heron submit local examples/cookbook/live_view.py pages -- DATA OUTPUT
python -m examples.cookbook.live_view_read OUTPUT
"""

import sys

from heronry.streamlet import Builder, files, view

DATA, OUTPUT = sys.argv[1:3] if len(sys.argv) > 2 else ("examples/cookbook/data", "out")

pages = Builder("pages")
(
    pages.source(files(f"{DATA}/views", "json", grows=True), event_time="time", name="views")
    .key_by("page")
    .count_by_key(name="counts", parallelism=2)
    .sink(view("pages", f"{OUTPUT}/pages", bucket=3600), name="pages_view")
)
