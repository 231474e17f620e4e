"""Typed records from dirty lines: records without the declared fields are put aside with the reason.

heron submit local examples/cookbook/readings.py readings -- DATA OUTPUT
"""

import datetime as dt
import sys
from dataclasses import dataclass

from heronry.streamlet import Builder, files, max_, to_files

DATA, OUTPUT = sys.argv[1:3] if len(sys.argv) > 2 else ("examples/cookbook/data", "out")


@dataclass
class Reading:
    """Fields of a line; other fields are dropped."""

    sensor: int
    at: dt.datetime
    celsius: float | None = None


readings = Builder("readings")
typed = readings.source(files(f"{DATA}/readings", "json"), name="lines").with_schema(Reading, name="typed")
warmest = typed.key_by("sensor").reduce_by_key(max_(), value="celsius", updates=False, name="warmest")
typed.sink(to_files(f"{OUTPUT}/typed"), name="typed_out")
warmest.sink(to_files(f"{OUTPUT}/warmest"), name="warmest_out")
