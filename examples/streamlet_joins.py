"""Joins as a streamlet program: which ad was clicked within the minute in which it was shown, and its advertiser.

    heron submit local examples/streamlet_joins.py ads -- OUTPUT [SHOWN]
    heron submit spark examples/streamlet_joins.py ads --output-path OUTPUT/batch -- OUTPUT [SHOWN]

The program generates SHOWN ads (default 20000) and clicks for some of them. OUTPUT gets ``clicked`` (each ad with its
advertiser and whether it was clicked) and ``late``. Both engines give the same results.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from heronry.streamlet import Builder, Joined, Matched, sequence, to_files, tumbling

_arguments = dict(enumerate(sys.argv[1:]))
OUTPUT = Path(_arguments.get(0, "ads"))
SHOWN = int(_arguments.get(1, 20_000))
ADVERTISERS = [{"ad": ad, "advertiser": name} for ad, name in enumerate(("Ann", "Bo", "Cy", "Di", "Ed"))]


def show(number: int) -> dict[str, Any]:
    """Return an ad. One is shown every 100 ms of event time."""
    return {"time": 1_700_000_000 + number / 10, "show": number, "ad": number % 7}


def click(number: int) -> dict[str, Any]:
    """Return a click. One ad in three is clicked, up to 20 seconds later."""
    return {"time": 1_700_000_000 + number * 3 / 10 + number * 31 % 20, "show": number * 3}


def to_row(match: Matched) -> dict[str, Any]:
    """Return the output row of a pair and its advertiser."""
    pair: Joined = match.record
    return {
        "show": pair.key,
        "minute": pair.start,
        "clicked": pair.right is not None,
        "advertiser": match.row["advertiser"] if match.row else None,
    }


def ad_of(pair: Joined) -> int:
    """Return the ad of a pair; a left join always has a left side."""
    return int(pair.left["ad"])


def own_ad(row: dict[str, Any]) -> int:
    """Return the key of a row of the table."""
    return int(row["ad"])


ads = Builder("ads")
shown = ads.source(sequence(SHOWN, show), event_time="time", name="shown").key_by("show")
clicks = ads.source(sequence(SHOWN // 3, click), event_time="time", name="clicks").key_by("show")
pairs = shown.window(tumbling(60), allowed_lateness=120).join(clicks, "left", name="in_a_minute")
named = pairs.lookup(ADVERTISERS, on=ad_of, key=own_ad, how="left", name="advertiser").map(to_row)
named.sink(to_files(OUTPUT / "clicked"), name="clicked")
pairs.late().sink(to_files(OUTPUT / "late"), name="late")
