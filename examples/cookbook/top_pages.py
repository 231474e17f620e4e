"""The three most viewed pages of each hour: counts by page and hour, then the greatest of each hour.

heron submit local examples/cookbook/top_pages.py top -- DATA OUTPUT
"""

import sys

from heronry.streamlet import Builder, Windowed, files, to_files, top_k, tumbling

DATA, OUTPUT = sys.argv[1:3] if len(sys.argv) > 2 else ("examples/cookbook/data", "out")


def views_and_page(counted: Windowed) -> tuple[int, str]:
    """Return the value by which pages are ranked."""
    return counted.value, counted.key


top = Builder("top")
views = top.source(files(f"{DATA}/views", "json"), event_time="time", name="views")
by_page = views.key_by("page").window(tumbling(3600), allowed_lateness=60).count_by_key(name="by_page")
# The result of a window has the event time end - 1, so it lies in the same hour again.
best = by_page.key_by(lambda _: "all").window(tumbling(3600), allowed_lateness=3600)
ranked = best.reduce_by_key(top_k(3), value=views_and_page, name="best")
ranked.map(lambda hour: {"hour_ms": hour.start, "top": hour.value}, name="row").sink(
    to_files(f"{OUTPUT}/top"), name="top_out"
)
