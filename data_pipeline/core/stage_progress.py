"""Progress of a stage, and an estimate of its remaining time from its speed so far."""

from __future__ import annotations

SURE_FROM = 2.0  # minimum seconds and finished tasks before an estimate is given


def format_progress(done: int, tasks: int, seconds: float) -> str:
    """Return the progress of a stage in per cent, with the estimated time left once there is enough data.

    Args:
        done: Number of finished tasks.
        tasks: Number of all tasks.
        seconds: Time since the start of the stage.
    """
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
