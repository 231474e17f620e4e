"""A spout that drops data which has grown too old (Heron paper, section 5.4.2).

Under backpressure data piles up at the source. With ``topology.spout.drop.older.ms`` set, a spout that says how old its
data is, by a method ``emit_time_ms(values)`` (milliseconds since 1970), emits no tuple older than that: it is counted,
and its message id is acked at once, so that the source lets go of it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from heron_instance.core.setup import Setup
from heron_instance.core.task import Task
from heron_runtime.model.settings import Keys, setting


class AgeFilter:
    """A row filter that lets rows pass that are young enough. ``wall`` gives seconds since 1970; ``let_go`` takes the
    message ids of the others."""

    def __init__(
        self,
        emit_time_ms: Callable[[Any], float],
        limit_ms: float,
        wall: Callable[[], float],
        let_go: Callable[[Any], None],
    ) -> None:
        self._emit_time_ms = emit_time_ms
        self._limit_ms = limit_ms
        self._wall = wall
        self._let_go = let_go
        self._dropped = 0

    def __call__(self, row: tuple[Any, ...], tup_id: Any, stream: str, direct_task: int | None) -> bool:
        if 1000 * self._wall() - self._emit_time_ms(row) <= self._limit_ms:
            return True
        self._dropped += 1
        if tup_id is not None:
            self._let_go(tup_id)
        return False

    def take_dropped(self) -> int:
        """How many were dropped since the last call."""
        dropped, self._dropped = self._dropped, 0
        return dropped


def age_filter(setup: Setup, task: Task, let_go: Callable[[Any], None]) -> AgeFilter | None:
    """What drops data that is too old, if there is a limit. Raises TypeError for a spout that does not tell the age."""
    older_ms = setting(task.config, Keys.TOPOLOGY_SPOUT_DROP_OLDER_MS)
    if older_ms is None:
        return None
    if not hasattr(task.component, "emit_time_ms"):
        raise TypeError(
            f"{task.name}: topology.spout.drop.older.ms needs a method emit_time_ms(values) of the spout: "
            "write it (milliseconds since 1970 of a tuple), or leave the setting out"
        )
    return AgeFilter(task.component.emit_time_ms, older_ms, setup.wall, let_go)
