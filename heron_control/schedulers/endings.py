"""Reasons of process ends as text."""

from __future__ import annotations

import signal


def exit_in_words(code: int | None, last_line: str) -> str:
    """Return why a process ended.

    ``code`` is the exit code, minus the signal's number, or None if unknown.
    """
    if code is None:
        return "ended with its parent"
    if code < 0:
        try:
            name = signal.Signals(-code).name
        except ValueError:
            name = f"signal {-code}"
        return f"killed by {name}"
    return f"exit code {code}" + (f": {last_line}" if last_line and code else "")
