"""The emits of one call of user code, held until it has returned: they leave all together, or were never there.

Where a call may be undone (``dead_letters.py``) nothing that it emits may be routed before, not even by a look around
in the middle of a long call. A row is checked when it is emitted, and direct and custom groupings choose then, so that
what they raise is raised within the call. Nothing is tracked where state is kept, so there are no anchors.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from heron_instance.core.groupings import Row
from heron_instance.core.streams import OutputStream


class CannotHold(RuntimeError):
    """The call asked for what only an emit that leaves at once could give."""


class HeldCall:
    """Of one call of ``process``. ``failed``: it has failed its tuple itself, for ``reason``."""

    def __init__(self) -> None:
        self.failed = False
        self.reason: Any = None
        self._rows: list[tuple[OutputStream, Row]] = []

    def add(self, out: OutputStream, row: Row, direct_task: int | None, need_task_ids: bool) -> None:
        """An emit. Raises CannotHold, and what direct and custom groupings raise."""
        if need_task_ids:
            raise CannotHold(
                f"{out.where}: emit cannot tell the task ids (need_task_ids) in a bolt with dead_letters, whose emits "
                "leave when process has returned: leave one of the two out"
            )
        if out.deciders:
            out.decide(row, direct_task)
        self._rows.append((out, row))

    def fail(self, reason: Any) -> None:
        """The tuple in hand is failed; the first reason counts."""
        if not self.failed:
            self.failed, self.reason = True, reason

    def release(self, route_siblings: Callable[[OutputStream], None]) -> None:
        """The call has returned: its rows wait to be routed, in the order in which they were emitted."""
        for out, row in self._rows:
            if out.siblings:
                route_siblings(out)
            out.rows.append(row)

    def forget(self) -> None:
        """The call is undone."""
        for out, _ in reversed(self._rows):
            for grouping in out.deciders:
                grouping.forget_last()
