"""Abandoned carts: users who added an item and did nothing for half an hour. State and a timer by key.

heron submit local examples/cookbook/carts.py carts -- DATA OUTPUT
"""

import sys
from typing import Any

from heronry.streamlet import Builder, Context, Process, files, to_files

DATA, OUTPUT = sys.argv[1:3] if len(sys.argv) > 2 else ("examples/cookbook/data", "out")
PATIENCE_MS = 30 * 60 * 1000


class Abandoned(Process):
    """Handlers of the records and the timer of a user, in order of event time on every engine."""

    def on_record(self, context: Context, record: Any) -> None:
        """Update the list of items, which is the state, and move the timer."""
        items = list(context.state or ())
        if record["event"] == "add":
            items.append(record["item"])
        elif record["event"] == "remove":
            items.remove(record["item"])
        else:
            items.clear()
        context.state = items or None
        if items:
            context.set_timer(context.time_ms + PATIENCE_MS)
        else:
            context.cancel_timer()

    def on_timer(self, context: Context, name: str) -> None:
        """Emit the cart that was left."""
        context.emit({"user": context.key, "since_ms": context.time_ms - PATIENCE_MS, "items": context.state})
        context.state = None


carts = Builder("carts")
events = carts.source(files(f"{DATA}/carts", "json"), event_time="time", name="events")
events.key_by("user").process(Abandoned, allowed_lateness=60, name="left").sink(
    to_files(f"{OUTPUT}/carts"), name="left_out"
)
