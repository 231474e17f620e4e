"""Generations: the lives of a whole topology between two restores, as a field of its physical plan.

Whatever is lost of a generation, a process, a connection, a frame, ends it for all; the next one begins everywhere from
the last complete checkpoint. A topology whose state is not kept stands in generation 0 for ever.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

NO_CHECKPOINT = 0  # its state is the initial one


class Phase(StrEnum):
    """Of a generation."""

    RESTORING = "restoring"  # everybody loads the state of its checkpoint; no tuple is processed
    RUNNING = "running"
    FAILED = "failed"  # somebody has to do something; see its cause


class PlaceKind(StrEnum):
    """What stands at a place."""

    STREAM_MANAGER = "stmgr"
    TASK = "task"


@dataclass(frozen=True, slots=True, order=True)
class Place:
    """Where one process of the plan stands: the stream manager of a container, or a task."""

    kind: PlaceKind
    number: int

    def __str__(self) -> str:
        return (
            f"stream manager of container {self.number}"
            if self.kind is PlaceKind.STREAM_MANAGER
            else f"task {self.number}"
        )


def stream_manager_of(container: int) -> Place:
    """The place of a container's stream manager."""
    return Place(PlaceKind.STREAM_MANAGER, container)


def task_place(task: int) -> Place:
    """The place of a task."""
    return Place(PlaceKind.TASK, task)


@dataclass(frozen=True, slots=True, order=True)
class Member:
    """The process that takes part in a generation."""

    place: Place
    incarnation: int


@dataclass(frozen=True)
class Generation:
    """A field of the physical plan: how state is begun with. A topology starts with (1, restoring, from nothing).

    ``members``: once it runs, the incarnation at each place that has reported to be restored; nobody else does
    anything. ``failures``: restores in a row, without a complete checkpoint between, that user code or storage caused.
    """

    number: int
    phase: Phase
    restore_from: int = NO_CHECKPOINT
    members: tuple[Member, ...] = ()
    failures: int = 0
    cause: str = ""

    def incarnation(self, place: Place) -> int | None:
        """Of the member at a place; None if none is named."""
        return next((member.incarnation for member in self.members if member.place == place), None)


NO_GENERATION = Generation(0, Phase.RUNNING)
