"""Page views in a view that can be queried while they are counted, by buckets of an hour.

heron submit local examples/cookbook/live_view.py pages -- DATA OUTPUT
heron pipeline top OUTPUT/pages
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
