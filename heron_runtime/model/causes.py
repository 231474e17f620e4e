"""Backpressure causes: who is slow, and who says so (protocols: causes are a set, not events)."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class CauseKind(StrEnum):
    """What the buffer over its high water mark leads to."""

    TASK = "task"
    LINK = "link"


@dataclass(frozen=True, slots=True, order=True)
class Cause:
    """One buffer over its mark. ``container`` announces it; ``peer`` is the far end of a slow link."""

    kind: CauseKind
    component: str
    task: int
    container: int
    peer: int = 0

    def __str__(self) -> str:
        if self.kind is CauseKind.TASK:
            return f"{self.component} task {self.task} (seen in container {self.container})"
        return f"link from container {self.container} to container {self.peer}"
