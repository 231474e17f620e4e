"""Bytes by host and ten minutes; records that arrive after their window has closed are put aside.

heron submit local examples/cookbook/traffic.py traffic -- DATA OUTPUT
"""

import sys

from heronry.streamlet import Builder, files, to_files, tumbling

DATA, OUTPUT = sys.argv[1:3] if len(sys.argv) > 2 else ("examples/cookbook/data", "out")

traffic = Builder("traffic")
samples = traffic.source(files(f"{DATA}/traffic", "json"), event_time="time", name="samples")
sums = samples.key_by("host").window(tumbling(600), allowed_lateness=300).sum_by_key("bytes", name="sums")
sums.sink(to_files(f"{OUTPUT}/traffic"), name="traffic_out")
sums.late().sink(to_files(f"{OUTPUT}/late"), name="late_out")
