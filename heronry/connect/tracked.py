"""Sources that emit by split and position, and track acknowledgements with ``ATLEAST_ONCE``.

Theory of operation. In that mode each row has a message id. Failed rows are emitted again, from memory. A split's
position is *safe* once everything before it is acknowledged. Safe positions are written about once a second to a file
of the task below ``user.positions.folder``. A restarted task resumes from there, so unacknowledged rows are emitted a
second time and none are lost. Each task of a component reads the files of all its tasks, because an update may
reassign splits. If the server itself stores confirmed positions (``Reader.confirm``), no such file is written.

In the other modes rows have no ids: ``EFFECTIVELY_ONCE`` returns to the positions of a checkpoint, and ``ATMOST_ONCE``
never goes back.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from heron_runtime.files import entries, replace_file
from heron_runtime.model.settings import Keys, setting
from heronry.api.component import Spout
from heronry.api.config import Config
from heronry.connect.acked import Acked, Row
from heronry.connect.settings import ConnectError, step_name, text

FOLDER = text("user.positions.folder", "where ATLEAST_ONCE keeps positions", "positions")
MOST_OPEN = 50_000  # maximum number of unacknowledged rows
SETTLE_SECS = 1.0
RowId = tuple[str, int]  # split, and the row's number within it since the start


class PositionTracker:
    """Rows that are emitted and not yet acknowledged, by split. Performs no I/O."""

    def __init__(self) -> None:
        self._splits: dict[str, Acked] = {}
        self._touched: set[str] = set()
        self.open = 0  # rows

    def emitted(self, split: str, rows: Sequence[Row], position: Any) -> list[RowId]:
        """Record rows that are emitted now, with the position after them, and return their ids."""
        self._touched.add(split)
        self.open += len(rows)
        return [(split, number) for number in self._splits.setdefault(split, Acked()).given(rows, position)]

    def ack(self, row: RowId) -> None:
        """Remove a processed row."""
        split, number = row
        if self.row(row) is not None:
            self._splits[split].ack(number)
            self._touched.add(split)
            self.open -= 1

    def row(self, row: RowId) -> Row | None:
        """Return an open row, or None if it is not open."""
        split, number = row
        return self._splits[split].row(number) if split in self._splits else None

    def safe(self) -> dict[str, Any]:
        """Return the furthest position of each split before which all rows are acknowledged, if it has advanced."""
        floors = {split: self._splits[split].floor() for split in self._touched}
        self._touched.clear()
        return {split: position for split, position in floors.items() if position is not None}


class PositionFile:
    """File of one task's safe positions. It also reads the files of the component's other tasks."""

    def __init__(self, config: Mapping[str, Any], context: Any) -> None:
        self._folder, self._begin = Path(FOLDER.of(config)), f"{step_name(context)}."
        self._path = self._folder / f"{self._begin}{context.get_task_id()}.json"
        self._topology = context.get_topology_id()

    def load(self) -> dict[str, Any]:
        """Return the newest saved position of each split in this topology. Raises ConnectError."""
        positions: dict[str, Any] = {}
        try:
            names = [path for path in entries(self._folder) if path.name.startswith(self._begin)]
            for path in sorted(names, key=lambda path: path.stat().st_mtime_ns):
                if path.suffix == ".json" and (document := json.loads(path.read_bytes()))["topology"] == self._topology:
                    positions.update(document["positions"])
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise self._failed("read", error) from None
        return positions

    def save(self, positions: Mapping[str, Any]) -> None:
        """Replace the file atomically. Raises ConnectError."""
        document = json.dumps({"topology": self._topology, "positions": dict(positions)})
        try:
            os.makedirs(self._folder, exist_ok=True)
            replace_file(self._path, document)
        except OSError as error:
            raise self._failed("written", error) from None

    def _failed(self, what: str, error: Exception) -> ConnectError:
        return ConnectError(
            f"positions of the source at {self._folder.absolute()} cannot be {what} ({error}): name a folder that the "
            f"topology's tasks may write, by config {FOLDER.key!r}, or remove a damaged file and read everything again"
        )


class TrackedSource(Spout):
    """Base class of sources that track positions.

    Subclasses call ``begin_tracking`` at the start, ``settle`` in each ``next_tuple``, and ``emit_page`` to emit.
    """

    _tracker: PositionTracker | None = None

    def begin_tracking(
        self, config: Mapping[str, Any], context: Any, settle_secs: float = SETTLE_SECS, *, is_kept: bool = False
    ) -> None:
        """Load the saved positions.

        Args:
            config: The topology's configuration.
            context: The component's topology context.
            settle_secs: Interval between savings of safe positions, in seconds.
            is_kept: Whether the server stores confirmed positions, so that no file is written.

        Raises:
            ConnectError: The saved positions cannot be read.
        """
        self._tracker, self._file, self._left = None, None, dict[str, Any]()
        self._settle_secs, self._settle_at = settle_secs, 0.0
        if setting(config, Keys.TOPOLOGY_RELIABILITY_MODE) == Config.ATLEAST_ONCE:
            self._tracker = PositionTracker()
            if not is_kept:
                self._file = PositionFile(config, context)
                self._left = self._file.load()

    def position_of(self, split: str, first: Any = None) -> Any:
        """Return the position to read a split from, or ``first`` if it was never read."""
        position = self.keyed.get(split)
        return self._left.get(split, first) if position is None else position

    def has_room(self) -> bool:
        """Return False if too many rows are open to read more."""
        return self._tracker is None or self._tracker.open < MOST_OPEN

    def is_settled(self) -> bool:
        """Return True if all emitted rows are acknowledged."""
        return self._tracker is None or not self._tracker.open

    def emit_page(self, split: str, rows: Sequence[Row], position: Any) -> None:
        """Emit the rows of a split, possibly none, and store ``position``, the position after them."""
        if self._tracker is not None:
            ids = self._tracker.emitted(split, rows, position)
            if rows:
                self.emit_many(rows, ids)
        elif rows:
            self.emit_many(rows)
        self.keyed[split] = position

    def ack(self, tup_id: Any) -> None:
        """Remove an acknowledged row."""
        if self._tracker is not None:
            self._tracker.ack(tup_id)

    def fail(self, tup_id: Any) -> None:
        """Emit a failed row again."""
        row = self._tracker.row(tup_id) if self._tracker is not None else None
        if row is not None:
            self.emit(row, tup_id)

    def settle(self, *, now: bool = False) -> None:
        """Confirm and save safe positions, if the interval has elapsed or ``now`` is set. Raises ConnectError."""
        if self._tracker is None or (not now and time.monotonic() < self._settle_at):
            return
        self._settle_at = time.monotonic() + self._settle_secs
        safe = self._tracker.safe()
        if safe:
            self.confirm(safe.items())
            self._left.update(safe)
            if self._file is not None:
                owned = {*self.owned_splits()}
                self._file.save({split: position for split, position in self._left.items() if split in owned})

    def confirm(self, safe: Iterable[tuple[str, Any]]) -> None:
        """Tell a server that it need not keep data before these positions. The default does nothing."""

    def close(self) -> None:
        """Save the safe positions."""
        if self._tracker is not None:
            try:
                self.settle(now=True)
            except ConnectError as error:  # the component ends anyway; rows that were not saved are read again
                self.log.warning("the last positions are not kept, what was on its way comes again: %s", error)
