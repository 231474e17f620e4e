"""Visits to a site: page views of one user without a gap of more than ten minutes.

heron submit local examples/cookbook/visits.py visits -- DATA OUTPUT
"""

import sys

from heronry.streamlet import Builder, Windowed, files, session, to_files

DATA, OUTPUT = sys.argv[1:3] if len(sys.argv) > 2 else ("examples/cookbook/data", "out")
GAP = 600


def to_row(visit: Windowed) -> dict[str, object]:
    """Return the row of a visit. A session ends the gap after its last record."""
    minutes = (visit.end - visit.start) / 60_000 - GAP / 60
    return {"user": visit.key, "began_ms": visit.start, "minutes": round(minutes, 1), "pages": visit.value}


visits = Builder("visits")
views = visits.source(files(f"{DATA}/views", "json"), event_time="time", name="views")
counted = views.key_by("user").window(session(GAP), allowed_lateness=60).count_by_key(name="pages")
counted.map(to_row).sink(to_files(f"{OUTPUT}/visits"), name="visits_out")
