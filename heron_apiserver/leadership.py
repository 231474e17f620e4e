"""Leader election as seen by one API server: a state machine over what the state store reports.

::

    STANDBY ──no leader──▶ CANDIDATE ──claim finished──▶ STANDBY ──the node has my claim──▶ LEADING
                                                                              still mine ▲      │ suspended
                                                                                         └── SUSPENDED
    from any state: session lost; from LEADING and SUSPENDED: the node has another claim ──▶ OVER

A candidate creates the ephemeral node of the cluster with a claim that no other process uses. Only the next read of
the node tells whether the claim won, so a lost answer of the store does no harm. A claim is valid for one session. A
process that loses its session is OVER and restarts, so its unfinished work never mixes with a second term.

LEADING is a belief, and harmless where it is wrong: each transaction checks the node (``FencedStore``). Actions
without a transaction, such as starting containers again, stop while the session is SUSPENDED.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto


class LeadershipRole(Enum):
    """Role of this process in the election."""

    STANDBY = "standby"
    CANDIDATE = "candidate"
    LEADING = "leading"
    SUSPENDED = "suspended"
    OVER = "over"


class LeadershipStep(Enum):
    """Action for the shell."""

    LOOK = "look"  # read the node, then report ``NodeRead``
    STAND = "stand"  # create the node with ``claim``, then report ``CLAIM_FINISHED``
    LEAD = "lead"
    PAUSE = "pause"
    RESUME = "resume"
    END = "end"  # of the process


class LeadershipSignal(Enum):
    """Event without content."""

    CLAIM_FINISHED = auto()  # the claim transaction was committed, refused, or its outcome is unknown
    STORE_SUSPENDED = auto()  # the store does not answer; the session may still be alive
    STORE_CONNECTED = auto()  # the store answers, in the same session
    NODE_CHANGED = auto()  # the node may have changed
    SESSION_LOST = auto()  # the session and every node it owned have ended


@dataclass(frozen=True, slots=True)
class NodeRead:
    """The node was read. ``holder`` is the claim in it, empty without a node."""

    holder: str


LeadershipEvent = NodeRead | LeadershipSignal


class Leadership:
    """State machine of one process.

    Args:
        claim: identifier of this process, unique among all processes that ever ran.
    """

    def __init__(self, claim: str) -> None:
        self.claim = claim
        self.role = LeadershipRole.STANDBY
        self._connected = True

    @property
    def acting(self) -> bool:
        """Return True between LEAD and END."""
        return self.role in (LeadershipRole.LEADING, LeadershipRole.SUSPENDED)

    def handle(self, event: LeadershipEvent) -> list[LeadershipStep]:
        """Return the actions that follow from an event."""
        match event:
            case NodeRead(holder):
                return self._on_node_read(holder)
            case LeadershipSignal.CLAIM_FINISHED:
                return self._on_claim_finished()
            case LeadershipSignal.STORE_SUSPENDED:
                return self._on_suspended()
            case LeadershipSignal.STORE_CONNECTED:
                self._connected = True
                return self._look()
            case LeadershipSignal.NODE_CHANGED:
                return self._look()
            case LeadershipSignal.SESSION_LOST:
                return self._end()

    def _look(self) -> list[LeadershipStep]:
        return [] if self.role is LeadershipRole.OVER else [LeadershipStep.LOOK]

    def _on_node_read(self, holder: str) -> list[LeadershipStep]:
        if self.role in (LeadershipRole.OVER, LeadershipRole.CANDIDATE) or not self._connected:
            return []  # STORE_CONNECTED causes another read
        if holder == self.claim:
            before, self.role = self.role, LeadershipRole.LEADING
            return {
                LeadershipRole.STANDBY: [LeadershipStep.LEAD],
                LeadershipRole.SUSPENDED: [LeadershipStep.RESUME],
            }.get(before, [])
        if self.acting:
            return self._end()
        if holder:
            return []
        self.role = LeadershipRole.CANDIDATE
        return [LeadershipStep.STAND]

    def _on_claim_finished(self) -> list[LeadershipStep]:
        if self.role is not LeadershipRole.CANDIDATE:
            return []
        self.role = LeadershipRole.STANDBY
        return [LeadershipStep.LOOK]

    def _on_suspended(self) -> list[LeadershipStep]:
        self._connected = False
        if self.role is not LeadershipRole.LEADING:
            return []
        self.role = LeadershipRole.SUSPENDED
        return [LeadershipStep.PAUSE]

    def _end(self) -> list[LeadershipStep]:
        if self.role is LeadershipRole.OVER:
            return []
        self.role = LeadershipRole.OVER
        return [LeadershipStep.END]
