"""What a tuple weighs for each task (``heron_runtime/model/weights.py``), and which instances here have to know.

A bolt tells its stream manager with its credit; that one tells its peers, with theirs; each tells those of its own
instances whose component is read by the task's. Before anything is known of a task its tuples count as heavy, so that
little is sent to it until it has shown how quick it is.
"""

from __future__ import annotations

from heron_runtime.model.weights import UNKNOWN_WEIGHT
from stream_manager.core.routing import Routes


class Weights:
    """Of every task of the plan."""

    def __init__(self) -> None:
        self._by_task: dict[int, int] = {}
        self._changed: dict[int, None] = {}

    def of(self, task: int) -> int:
        """What a tuple weighs for this task at least."""
        return self._by_task.get(task, UNKNOWN_WEIGHT)

    def tell(self, task: int, weight: int) -> None:
        """The task's own word."""
        if self.of(task) != weight:
            self._by_task[task] = weight
            self._changed[task] = None

    def set_routes(self, routes: Routes) -> None:
        """A new plan: tasks it no longer has are forgotten."""
        self._by_task = {task: weight for task, weight in self._by_task.items() if task in routes.where}

    def take_changed(self) -> list[int]:
        """The tasks whose weight has changed since the last call."""
        changed, self._changed = self._changed, {}
        return list(changed)

    def check(self) -> None:
        """Assert every invariant."""
        assert not self._changed, "changes are told by the end of each event"
