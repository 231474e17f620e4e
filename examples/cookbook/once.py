"""Remove repeated events: keep one for each id and day, as csv in a folder for each state.

heron submit local examples/cookbook/once.py once -- DATA OUTPUT
"""

import sys

from heronry.streamlet import Builder, files, to_files, tumbling

DATA, OUTPUT = sys.argv[1:3] if len(sys.argv) > 2 else ("examples/cookbook/data", "out")
FIELDS = ["id", "time", "parcel", "state"]

once = Builder("once")
deliveries = once.source(files(f"{DATA}/deliveries", "json"), event_time="time", name="deliveries")
events = deliveries.key_by("id").window(tumbling(86_400), allowed_lateness=3600).distinct(name="events")
events.sink(to_files(f"{OUTPUT}/once", "csv", fields=FIELDS, partition_by="state"), name="once_out")
