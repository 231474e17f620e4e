"""What happened to a topology, as ``heron pipeline history`` prints it, and the times that it is asked for."""

from __future__ import annotations

from datetime import UTC, datetime

from heron_cli.console import Format, print_json, print_line, print_table
from heron_control.history.reading import Events, History
from heron_runtime.failures import UsageError
from heron_runtime.model.history import HistoryEvent

UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}


def time_of(text: str, now: float) -> int | None:
    """Milliseconds since 1970 of ``2026-11-25T10:00`` (UTC, if it does not say) or ``90m`` (ago); None for nothing.
    Raises UsageError."""
    if not text:
        return None
    amount, unit = text[:-1], text[-1]
    try:
        if unit in UNITS and amount.replace(".", "", 1).isdecimal():
            return max(0, round((now - float(amount) * UNITS[unit]) * 1000))
        at = datetime.fromisoformat(text)
        return max(0, round((at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp() * 1000))
    except (ValueError, OverflowError):
        raise UsageError(f"{text!r} is no time", "Write 2026-11-25, 2026-11-25T10:00, or 90m, 12h, 7d ago.") from None


def show_events(history: History, asked: Events, output: Format) -> None:
    """Print them. Raises UsageError for a kind that there is not, Unavailable without DuckDB."""
    found = history.events(asked)
    if output is Format.JSON:
        print_json([_document(each) for each in found])
        return
    print_line(f"what happened to {history.place.topology} ({history.place.id}), the newest first")
    rows = [[_at(e.time_ms), e.kind, e.container, e.component or None, e.count, e.text] for e in found]
    print_table(("time", "kind", "container", "component", "count", "what"), rows, ("container", "count"))
    if len(found) == asked.limit:
        print_line(f"there may be more before {_at(found[-1].time_ms)}: --until, or a larger --limit")


def _at(time_ms: int) -> str:
    return datetime.fromtimestamp(time_ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _document(each: HistoryEvent) -> dict[str, object]:
    return {
        "time": _at(each.time_ms), "kind": each.kind, "container": each.container, "component": each.component or None,
        "instance": each.instance or None, "count": each.count, "text": each.text, "detail": each.detail or None,
    }  # fmt: skip
