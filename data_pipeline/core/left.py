"""How far a stage is, and how long it will still take if it goes on as it has."""

from __future__ import annotations

SURE_FROM = 2.0  # seconds and tasks: before, a guess would be none


def left(done: int, tasks: int, seconds: float) -> str:
    """``done`` of so many tasks after so many seconds: per cent, and time left once there is something to guess by."""
    if not tasks:
        return ""
    share = f"{100 * done // tasks} %"
    if min(done, seconds) < SURE_FROM or done >= tasks:
        return share
    return f"{share}, about {_spoken(seconds * (tasks - done) / done)} left"


def _spoken(seconds: float) -> str:
    if seconds < 60:
        return f"{max(1, round(seconds))} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"
