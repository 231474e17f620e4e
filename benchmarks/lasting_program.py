"""Streamlet program without end that counts page views per site and minute, for the soak test.

Arguments: a folder for the counts, views per second.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

from heronry.streamlet import Builder, sequence, to_files, tumbling

OUTPUT, RATE = Path(sys.argv[1]), float(sys.argv[2])
SITES = ("home", "shop", "blog", "help")


def view(number: int) -> dict[str, Any]:
    """Return the next view; views come in groups of a hundred, so that the rate costs few wake-ups."""
    if number % 100 == 99:
        time.sleep(100 / RATE)
    return {"time": 1_700_000_000_000 + number * 20, "site": SITES[number * 31 % 97 % len(SITES)]}


traffic = Builder("traffic")
views = traffic.source(sequence(10**12, view), event_time="time", unit="ms", name="views")
counts = views.key_by("site").window(tumbling(60), allowed_lateness=5).count_by_key(name="counts")
counts.sink(to_files(OUTPUT), name="minutes")
