"""Who waits for the topology to be active or paused: answered once everything that was asked for is stored."""

from __future__ import annotations

from heron_runtime.model.topology import TopologyState
from heron_runtime.wire.master import MasterStatus
from topology_master.core.events import Answer

MAX_REQUESTS = 64


class Requests:
    """The requests that wait, in order; the last one says what is wanted."""

    def __init__(self) -> None:
        self._waiting: dict[int, TopologyState] = {}

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def add(self, number: int, state: TopologyState) -> list[Answer]:
        """Take a request; returns its answer if it is refused at once."""
        if len(self._waiting) >= MAX_REQUESTS:
            return [Answer(number, None, "too many state changes at once; try again")]
        self._waiting[number] = state
        return []

    def wanted(self, stored: TopologyState) -> TopologyState:
        """What is wanted, where ``stored`` was wanted so far."""
        return next(reversed(self._waiting.values()), stored)

    def grant(self, status: MasterStatus) -> list[Answer]:
        """Everything asked for is stored."""
        waiting, self._waiting = self._waiting, {}
        return [Answer(number, status) for number in waiting]

    def refuse(self, error: str) -> list[Answer]:
        """Nothing can be stored, or not by this process."""
        waiting, self._waiting = self._waiting, {}
        return [Answer(number, None, error) for number in waiting]

    def check(self) -> None:
        """Assert every invariant."""
        assert len(self._waiting) <= MAX_REQUESTS
