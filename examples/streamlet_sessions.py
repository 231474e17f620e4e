"""Session windows as a streamlet program: visits to a site, computed from page views in any order.

    heron submit local examples/streamlet_sessions.py visits -- OUTPUT [VIEWS]
    heron submit spark examples/streamlet_sessions.py visits --output-path OUTPUT/batch -- OUTPUT [VIEWS]

The program generates VIEWS page views (default 20000). A visit ends after 30 seconds without a page view. OUTPUT gets
``visits`` (a line for each visit: visitor, start, end, number of pages) and ``late``. Both engines give the same
results.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from heronry.streamlet import Builder, sequence, session, to_files

_arguments = dict(enumerate(sys.argv[1:]))
OUTPUT = Path(_arguments.get(0, "visits"))
VIEWS = int(_arguments.get(1, 20_000))
VISITORS = 40


def view(number: int) -> dict[str, Any]:
    """Return a page view, up to ten seconds late. Each visitor is sometimes away for a minute."""
    visitor = number * 7919 % VISITORS
    minute = number // 300 + visitor
    away = 60 if minute % 5 == 0 else 0
    return {"time": 1_700_000_000 + number // 5 + away - number * 31 % 10, "visitor": f"visitor-{visitor}"}


visits = Builder("visits")
views = visits.source(sequence(VIEWS, view), event_time="time", name="views")
counted = views.key_by("visitor").window(session(30), allowed_lateness=90).count_by_key(name="visits")
counted.sink(to_files(OUTPUT / "visits"), name="visits_out")
counted.late().sink(to_files(OUTPUT / "late"), name="late")
