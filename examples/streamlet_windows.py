"""Windows of event time as a streamlet program: page views by site and minute, and late records.

    heron submit local examples/streamlet_windows.py traffic -- OUTPUT [VIEWS]

The program generates VIEWS page views (default 200000), one every 20 ms of event time, some up to 30 seconds late.
OUTPUT gets four folders: ``minutes`` (views of each site and minute), ``visitors`` (distinct visitors), ``late`` (views
after their window had closed), and ``archive`` (all views as Parquet by event hour, if pyarrow is installed).
"""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

from heronry.streamlet import Builder, archive, distinct, sequence, to_files, tumbling

_arguments = dict(enumerate(sys.argv[1:]))
OUTPUT = Path(_arguments.get(0, "traffic"))
VIEWS = int(_arguments.get(1, 200_000))
SITES = ("home", "shop", "blog", "help")


def view(number: int) -> dict[str, Any]:
    """Return a page view. One of a thousand is 30 seconds late."""
    late_ms = 30_000 if number % 1000 == 999 else number * 7919 % 3000
    return {
        "time": 1_700_000_000_000 + number * 20 - late_ms,
        "site": SITES[number * 31 % 97 % len(SITES)],
        "visitor": f"visitor-{number * 7919 % 5003}",
    }


traffic = Builder("traffic")
views = traffic.source(sequence(VIEWS, view), event_time="time", unit="ms", name="views")
by_minute = views.key_by("site").window(tumbling(60), allowed_lateness=5)
counts = by_minute.count_by_key(name="counts")
counts.sink(to_files(OUTPUT / "minutes"), name="minutes")
counts.late().sink(to_files(OUTPUT / "late"), name="late")
visitors = by_minute.reduce_by_key(distinct(), value="visitor", name="visitors")
visitors.sink(to_files(OUTPUT / "visitors"), name="visitors_out")
if importlib.util.find_spec("pyarrow") is not None:
    views.sink(archive(OUTPUT / "archive"), name="archive")
