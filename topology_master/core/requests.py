"""Requests that wait for an answer: changes of state (active, paused), checkpoints and restores.

A change of state is answered once every requested change is stored. A checkpoint request is answered when a checkpoint
that began after it is complete or cancelled, a restore request when a generation that began after it is stored.
"""

from __future__ import annotations

from typing import Protocol

from heron_runtime.model.plan import Generation, GenerationPhase
from heron_runtime.model.topology import TopologyState
from heron_runtime.wire.master import MasterStatus
from topology_master.core.events import AnswerRequest, Requested, RestoreRequested, StateRequested

MAX_REQUESTS = 64
RESTORE_REQUESTED = "restore requested"
NOT_KILLED_HERE = "a topology is killed through the state store, not through its master"
NO_STATE_KEPT = "its state is not kept: topology.reliability.mode is not EFFECTIVELY_ONCE"


class _StateRequests(Protocol):
    """Controller of checkpoints and restores. ``fault`` says why it cannot decide."""

    fault: str

    def ask(self, *, hold: bool) -> int:
        """Request a checkpoint; return the newest number before it."""

    def go_back(self, request: RestoreRequested) -> str:
        """Request a restore; return why it is refused, or ""."""


class PendingRequests:
    """Requests that wait for an answer, in order. The last change of state is the wanted one."""

    def __init__(self) -> None:
        self._changes: dict[int, TopologyState] = {}
        self._checkpoints: dict[int, int] = {}  # to the newest number when it was asked for
        self._restores: dict[int, int] = {}  # to the generation when it was asked for

    def __bool__(self) -> bool:
        return self.changes or self.of_state

    @property
    def changes(self) -> bool:
        """True if a request waits for a change of state."""
        return bool(self._changes)

    @property
    def of_state(self) -> bool:
        """True if a request waits for a checkpoint or a restore."""
        return bool(self._checkpoints or self._restores)

    def restore(self, now: Generation) -> str:
        """Return why a restore of the generation ``now`` is requested, or ""."""
        return (
            RESTORE_REQUESTED
            if any(not _restored(now.number, now.phase, requested_in) for requested_in in self._restores.values())
            else ""
        )

    def add(self, request: Requested, state: _StateRequests | None, status: MasterStatus) -> list[AnswerRequest]:
        """Add a request.

        Args:
            request: The request.
            state: The controller of checkpoints, or None where state is not kept.
            status: The current status of the master.

        Returns:
            The answer, if there is one at once.
        """
        if len(self._changes) + len(self._checkpoints) + len(self._restores) >= MAX_REQUESTS:
            return [AnswerRequest(request.number, None, "too many concurrent requests; try again")]
        if isinstance(request, StateRequested):
            if request.state is TopologyState.KILLED:
                return [AnswerRequest(request.number, None, NOT_KILLED_HERE)]
            self._changes[request.number] = request.state
            return []
        if state is None:
            return [AnswerRequest(request.number, None, NO_STATE_KEPT, final=True)]
        if state.fault and not (isinstance(request, RestoreRequested) and request.checkpoint):
            return [AnswerRequest(request.number, None, _cannot_be_read(state.fault), final=True)]
        if isinstance(request, RestoreRequested):
            why = state.go_back(request)
            if why:
                return [AnswerRequest(request.number, None, why, final=True)]
            self._restores[request.number] = status.tasks_state.generation
            return []
        if status.tasks_state.phase is GenerationPhase.FAILED:
            return [_failed(request.number, status.tasks_state.cause)]
        after = state.ask(hold=request.hold)
        if not request.wait:
            return [AnswerRequest(request.number, status)]
        self._checkpoints[request.number] = after
        return []

    def wanted(self, stored: TopologyState) -> TopologyState:
        """Return the wanted state, which is ``stored`` unless a change is requested."""
        return next(reversed(self._changes.values()), stored)

    def grant(self, status: MasterStatus) -> list[AnswerRequest]:
        """Answer every change of state; all of them are stored."""
        changes, self._changes = self._changes, {}
        return [AnswerRequest(number, status) for number in changes]

    def settle(self, status: MasterStatus) -> list[AnswerRequest]:
        """Answer the checkpoint and restore requests that the status decides."""
        now = status.tasks_state
        answers: list[AnswerRequest] = []
        for number, after in self._checkpoints.items():
            if now.last.number > after:
                answers.append(AnswerRequest(number, status))
            elif now.cancelled_last > after:
                text = f"checkpoint {now.cancelled_last} was cancelled: {now.cancelled_why}"
                answers.append(AnswerRequest(number, None, text, final=True))
            elif now.phase is GenerationPhase.FAILED:
                answers.append(_failed(number, now.cause))
        for number, generation in self._restores.items():
            if _restored(now.generation, now.phase, generation):
                answers.append(AnswerRequest(number, status))
        for answer in answers:
            self._checkpoints.pop(answer.number, None)
            self._restores.pop(answer.number, None)
        return answers

    def refuse(self, error: str) -> list[AnswerRequest]:
        """Refuse all requests: nothing can be stored, or not by this process."""
        waiting = [*self._changes, *self._checkpoints, *self._restores]
        for of_one_kind in (self._changes, self._checkpoints, self._restores):
            of_one_kind.clear()
        return [AnswerRequest(number, None, error) for number in waiting]

    def refuse_unreadable(self, fault: str) -> list[AnswerRequest]:
        """Refuse all requests because the last checkpoint cannot be read."""
        return self.refuse(_cannot_be_read(fault))

    def check(self) -> None:
        """Assert every invariant."""
        assert len(self._changes) + len(self._checkpoints) + len(self._restores) <= MAX_REQUESTS
        assert not (self._checkpoints.keys() & self._restores.keys())


def _restored(generation: int, phase: GenerationPhase, requested_in: int) -> bool:
    """Return whether a restore requested in generation ``requested_in`` has been stored."""
    return generation > requested_in and phase is not GenerationPhase.FAILED


def _failed(number: int, cause: str) -> AnswerRequest:
    return AnswerRequest(number, None, f"the topology has failed: {cause}; `heron restore` begins again", final=True)


def _cannot_be_read(fault: str) -> str:
    return (
        f"nothing is decided while checkpoints cannot be read: {fault}; fix the cause, or restore an older one, as "
        "`heron checkpoint list` shows them: `heron restore … NUMBER --repeat-output`"
    )
