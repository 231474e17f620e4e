"""Control messages that wait for their stream: the newest of each kind replaces the older ones, credit is merged.

A plan follows the weights that its tasks need, and a checkpoint command follows the plan it speaks of
(``instance_side.py``), so these two go to the end when they replace an older one. They are rare. Credit and
weights keep the place of what they replace, so that frequent ones are not held up.

So the queue is bounded whatever the far end does: one message of each kind, one limit and weight per task, and the
changes of the cause set since its last whole.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from heron_runtime.model.checkpoints import CheckpointWish
from heron_runtime.wire.control import CauseChange, CauseSet, PeerCredit, PlanUpdate, TaskCredit, TaskWeights
from stream_manager.core.credit import Grant

MAX_CHANGES = 64


class ControlOutbox:
    """A queue for one control stream."""

    def __init__(self) -> None:
        self._waiting: dict[Any, Any] = {}

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def put(self, message: Any) -> None:
        """Queue a message. It takes the place of the older message it replaces, unless it has to follow others."""
        waiting = self._waiting
        if isinstance(message, CauseChange):
            # Differences are numbered and must all arrive, or none: beyond the bound the next whole set repairs it.
            if sum(isinstance(key, tuple) for key in waiting) < MAX_CHANGES:
                waiting[CauseChange, message.number] = message
        elif isinstance(message, CauseSet):
            for key in [key for key in waiting if isinstance(key, tuple) or key is CauseSet]:
                del waiting[key]
            waiting[CauseSet] = message
        elif isinstance(message, PeerCredit) and PeerCredit in waiting:
            limits = {credit.task: credit for credit in waiting[PeerCredit].tasks}
            limits.update({credit.task: credit for credit in message.tasks})
            waiting[PeerCredit] = PeerCredit(tuple(limits[task] for task in sorted(limits)))
        elif isinstance(message, TaskWeights) and TaskWeights in waiting:
            weights = {weight.task: weight for weight in (*waiting[TaskWeights].tasks, *message.tasks)}
            waiting[TaskWeights] = TaskWeights(tuple(weights[task] for task in sorted(weights)))
        else:
            if isinstance(message, PlanUpdate | CheckpointWish):
                waiting.pop(type(message), None)
            waiting[type(message)] = message

    def take(self) -> Any:
        """The next message to send, None when there is none."""
        return self._waiting.pop(next(iter(self._waiting))) if self._waiting else None


def peer_credit(grants: Iterable[Grant], weight_of: Callable[[int], int]) -> PeerCredit:
    """What a peer may send, as a message; ``weight_of`` gives what a tuple weighs for a task."""
    told = sorted(grants, key=lambda grant: grant.task)
    for grant in told:
        grant.told = grant.taken
    return PeerCredit(tuple(TaskCredit(g.task, g.limit, weight_of(g.task), g.told) for g in told))
