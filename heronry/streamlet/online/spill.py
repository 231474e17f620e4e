"""Buckets of a view that are not in memory: a file for each, as a state log with one frame (state_log.py).

Not the view's own files: those hold plain data, in which a tuple becomes a list; here keys and accumulators come back
as they were. Of buckets that a batch owns, whose files in the view are gone, nothing needs to be kept.
"""

from __future__ import annotations

from pathlib import Path

from heronry.streamlet.monoid import Monoid
from heronry.streamlet.online.state import Entry
from heronry.streamlet.online.state_log import StateLog


class SpillFiles:
    """One task's."""

    def __init__(self, folder: Path, monoid: Monoid) -> None:
        self._folder = folder
        self._monoid = monoid

    def _path(self, start: int) -> Path:
        return self._folder / f"{start}.log"

    def write(self, start: int, entries: list[Entry]) -> None:
        """Replace what is there of the bucket."""
        log = StateLog(self._path(start), self._monoid)
        try:
            log.rewrite(entries, None)
        finally:
            log.close()

    def read(self, start: int) -> list[Entry]:
        """All that was written of it; nothing if it was removed."""
        if not self._path(start).exists():
            return []
        log = StateLog(self._path(start), self._monoid)
        try:
            return log.load().entries
        finally:
            log.close()

    def remove(self, start: int) -> None:
        """Nobody will ask for it."""
        self._path(start).unlink(missing_ok=True)
