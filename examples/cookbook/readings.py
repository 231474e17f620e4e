"""Typed records from dirty lines: what has not the declared fields is put aside with the reason, all others count.

heron submit local examples/cookbook/readings.py readings -- DATA OUTPUT
"""

import datetime as dt
import sys
from dataclasses import dataclass

from heronry.streamlet import Builder, files, max_, to_files

DATA, OUTPUT = sys.argv[1:3] if len(sys.argv) > 2 else ("examples/cookbook/data", "out")


@dataclass
class Reading:
    """What a line must hold; other fields are left out."""

    sensor: int
    at: dt.datetime
    celsius: float | None = None


readings = Builder("readings")
typed = readings.source(files(f"{DATA}/readings", "json"), name="lines").with_schema(Reading, name="typed")
warmest = typed.key_by("sensor").reduce_by_key(max_(), value="celsius", updates=False, name="warmest")
typed.sink(to_files(f"{OUTPUT}/typed"), name="typed_out")
warmest.sink(to_files(f"{OUTPUT}/warmest"), name="warmest_out")
