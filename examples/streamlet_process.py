"""State and timers for each key as a streamlet program: alarms about silent machines.

    heron submit local examples/streamlet_process.py alarms -- OUTPUT [READINGS]
    heron submit spark examples/streamlet_process.py alarms --output-path OUTPUT/batch -- OUTPUT [READINGS]

The program generates READINGS readings (default 20000), out of order by up to ten seconds. OUTPUT gets ``silent`` (a
line each time a machine was silent for a minute) and ``late``. Both engines give the same results.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from heronry.streamlet import Builder, Context, Process, sequence, to_files

_arguments = dict(enumerate(sys.argv[1:]))
OUTPUT = Path(_arguments.get(0, "alarms"))
READINGS = int(_arguments.get(1, 20_000))
MACHINES = 40


def reading(number: int) -> dict[str, Any]:
    """Return a reading. Each machine is sometimes silent for two minutes."""
    machine = number * 7919 % MACHINES
    away = 120 if (number // 300 + machine) % 5 == 0 else 0
    time = 1_700_000_000 + number // 5 + away - number * 31 % 10
    return {"time": time, "machine": f"machine-{machine}", "level": number % 100}


class Alarm(Process):
    """Report a machine that was silent for a minute, with its last level."""

    def on_record(self, context: Context, record: Any) -> None:
        """Keep the level and move the timer."""
        context.state = record["level"]
        context.set_timer(context.time_ms + 60_000, "silent")

    def on_timer(self, context: Context, name: str) -> None:
        """Emit an alarm after a minute without records."""
        context.emit({"machine": context.key, "silent_since": context.time_ms - 60_000, "level": context.state})
        context.state = None


alarms = Builder("alarms")
readings = alarms.source(sequence(READINGS, reading), event_time="time", name="readings")
silent = readings.key_by("machine").process(Alarm, allowed_lateness=150, name="silent")
silent.sink(to_files(OUTPUT / "silent"), name="silent_out")
silent.late().sink(to_files(OUTPUT / "late"), name="late")
