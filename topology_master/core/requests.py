"""Who waits for an answer: to a change of state (active, paused), for a checkpoint, for a restore.

A change of state is answered once everything that was asked for is stored; a checkpoint when one that began after it
was asked for is complete, or cancelled; a restore when a generation that began after it is stored.
"""

from __future__ import annotations

from typing import Protocol

from heron_runtime.model.generations import Generation, Phase
from heron_runtime.model.topology import TopologyState
from heron_runtime.wire.master import MasterStatus
from topology_master.core.events import AnswerRequest, Requested, RestoreRequested, StateRequested

MAX_REQUESTS = 64
RESTORE_REQUESTED = "somebody has asked for it"
NOT_KILLED_HERE = "a topology is killed through the state store, not through its master"
NO_STATE_KEPT = "its state is not kept: topology.reliability.mode is not EFFECTIVELY_ONCE"


class _StateRequests(Protocol):
    """Who takes checkpoints; ``fault``: why nothing can be decided."""

    fault: str

    def ask(self, *, hold: bool) -> int:
        """Take one now, and go on behind it or hold; returns the number after which it comes."""

    def go_back(self, asked: RestoreRequested) -> str:
        """The restore that is asked for goes to its checkpoint; or why it cannot."""


class PendingRequests:
    """The requests that wait, in order; the last change of state says what is wanted."""

    def __init__(self) -> None:
        self._changes: dict[int, TopologyState] = {}
        self._checkpoints: dict[int, int] = {}  # to the newest number when it was asked for
        self._restores: dict[int, int] = {}  # to the generation when it was asked for

    def __bool__(self) -> bool:
        return self.changes or self.of_state

    @property
    def changes(self) -> bool:
        """Whether somebody waits for a change of state."""
        return bool(self._changes)

    @property
    def of_state(self) -> bool:
        """Whether somebody waits for a checkpoint or a restore."""
        return bool(self._checkpoints or self._restores)

    def restore(self, now: Generation) -> str:
        """Why a restore is asked for, where this is the generation that stands, or ""."""
        return (
            RESTORE_REQUESTED
            if any(not _restored(now.number, now.phase, asked) for asked in self._restores.values())
            else ""
        )

    def add(self, asked: Requested, state: _StateRequests | None, status: MasterStatus) -> list[AnswerRequest]:
        """Take a request; returns its answer if it has one at once. ``state``: None where it is not kept."""
        if len(self._changes) + len(self._checkpoints) + len(self._restores) >= MAX_REQUESTS:
            return [AnswerRequest(asked.number, None, "too many requests at once; try again")]
        if isinstance(asked, StateRequested):
            if asked.state is TopologyState.KILLED:
                return [AnswerRequest(asked.number, None, NOT_KILLED_HERE)]
            self._changes[asked.number] = asked.state
            return []
        if state is None:
            return [AnswerRequest(asked.number, None, NO_STATE_KEPT, final=True)]
        if state.fault and not (isinstance(asked, RestoreRequested) and asked.checkpoint):
            return [AnswerRequest(asked.number, None, _cannot_be_read(state.fault), final=True)]
        if isinstance(asked, RestoreRequested):
            why = state.go_back(asked)
            if why:
                return [AnswerRequest(asked.number, None, why, final=True)]
            self._restores[asked.number] = status.tasks_state.generation
            return []
        if status.tasks_state.phase is Phase.FAILED:
            return [_failed(asked.number, status.tasks_state.cause)]
        after = state.ask(hold=asked.hold)
        if not asked.wait:
            return [AnswerRequest(asked.number, status)]
        self._checkpoints[asked.number] = after
        return []

    def wanted(self, stored: TopologyState) -> TopologyState:
        """What is wanted, where ``stored`` was wanted so far."""
        return next(reversed(self._changes.values()), stored)

    def grant(self, status: MasterStatus) -> list[AnswerRequest]:
        """Every change of state asked for is stored."""
        changes, self._changes = self._changes, {}
        return [AnswerRequest(number, status) for number in changes]

    def settle(self, status: MasterStatus) -> list[AnswerRequest]:
        """The answers to those who waited for what is so now."""
        now = status.tasks_state
        found: list[AnswerRequest] = []
        for number, after in self._checkpoints.items():
            if now.last.number > after:
                found.append(AnswerRequest(number, status))
            elif now.cancelled_last > after:
                text = f"checkpoint {now.cancelled_last} was cancelled: {now.cancelled_why}"
                found.append(AnswerRequest(number, None, text, final=True))
            elif now.phase is Phase.FAILED:
                found.append(_failed(number, now.cause))
        for number, generation in self._restores.items():
            if _restored(now.generation, now.phase, generation):
                found.append(AnswerRequest(number, status))
        for answer in found:
            self._checkpoints.pop(answer.number, None)
            self._restores.pop(answer.number, None)
        return found

    def refuse(self, error: str) -> list[AnswerRequest]:
        """Nothing can be stored, or not by this process."""
        waiting = [*self._changes, *self._checkpoints, *self._restores]
        for of_one_kind in (self._changes, self._checkpoints, self._restores):
            of_one_kind.clear()
        return [AnswerRequest(number, None, error) for number in waiting]

    def refuse_unreadable(self, fault: str) -> list[AnswerRequest]:
        """Nothing is decided at all, since checkpoints cannot be read."""
        return self.refuse(_cannot_be_read(fault))

    def check(self) -> None:
        """Assert every invariant."""
        assert len(self._changes) + len(self._checkpoints) + len(self._restores) <= MAX_REQUESTS
        assert not (self._checkpoints.keys() & self._restores.keys())


def _restored(generation: int, phase: Phase, asked: int) -> bool:
    """Whether who asked for a restore in generation ``asked`` has it."""
    return generation > asked and phase is not Phase.FAILED


def _failed(number: int, cause: str) -> AnswerRequest:
    return AnswerRequest(number, None, f"the topology has failed: {cause}; `heron restore` begins again", final=True)


def _cannot_be_read(fault: str) -> str:
    return (
        f"nothing is decided while checkpoints cannot be read: {fault}; mend that, or go back to an older one, as "
        "`heron checkpoint list` shows them: `heron restore … NUMBER --repeat-output`"
    )
