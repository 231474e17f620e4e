"""An alert when more than a fifth of a service's requests fail within five minutes, and one when it recovers.

heron submit local examples/cookbook/alerts.py alerts -- DATA OUTPUT
"""

import sys
from typing import Any

from heronry.streamlet import Builder, Context, files, mean, sliding, to_files

DATA, OUTPUT = sys.argv[1:3] if len(sys.argv) > 2 else ("examples/cookbook/data", "out")
MAX_RATE = 0.2


def failed(request: dict[str, Any]) -> int:
    """Return 1 for a failed request. The mean is the rate of failures."""
    return int(request["status"] >= 500)


def changes(context: Context, rate: Any) -> None:
    """Emit a change of the alert. The state is whether it is on."""
    is_on = rate.value > MAX_RATE
    if is_on != bool(context.state):
        state = "failing" if is_on else "recovered"
        context.emit({"service": context.key, "minute_ms": rate.end, "is": state, "rate": round(rate.value, 3)})
    context.state = is_on or None


alerts = Builder("alerts")
requests = alerts.source(files(f"{DATA}/requests", "json"), event_time="time", name="requests")
rates = requests.key_by("service").window(sliding(300, 60), allowed_lateness=30).reduce_by_key(
    mean(), value=failed, name="rates"
)  # fmt: skip
rates.key_by("key").process(changes, allowed_lateness=60, name="changes").sink(
    to_files(f"{OUTPUT}/alerts"), name="alerts_out"
)
