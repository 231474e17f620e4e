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

from enum import Enum


class LeadershipRole(Enum):
    """Role of this process in the election."""

    STANDBY = "standby"
    CANDIDATE = "candidate"
    LEADING = "leading"
    SUSPENDED = "suspended"
    OVER = "over"


class LeadershipStep(Enum):
    """Action for the shell."""

    LOOK = "look"  # read the node, then ``on_node_read``
    STAND = "stand"  # make the node with ``claim``, then ``on_claim_finished``, however it ended
    LEAD = "lead"
    PAUSE = "pause"
    RESUME = "resume"
    END = "end"  # of the process


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

    def on_node_read(self, holder: str) -> list[LeadershipStep]:
        """Handle the content of the node: ``holder`` is the claim in it, empty without a node."""
        if self.role in (LeadershipRole.OVER, LeadershipRole.CANDIDATE) or not self._connected:
            return []  # who is told that the store answers again looks again
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

    def on_claim_finished(self) -> list[LeadershipStep]:
        """Handle the end of the claim transaction: committed, refused or unknown."""
        if self.role is not LeadershipRole.CANDIDATE:
            return []
        self.role = LeadershipRole.STANDBY
        return [LeadershipStep.LOOK]

    def suspended(self) -> list[LeadershipStep]:
        """Handle a store that does not answer while the session may still be alive."""
        self._connected = False
        if self.role is not LeadershipRole.LEADING:
            return []
        self.role = LeadershipRole.SUSPENDED
        return [LeadershipStep.PAUSE]

    def connected(self) -> list[LeadershipStep]:
        """Handle a store that answers again in the same session."""
        self._connected = True
        return [] if self.role is LeadershipRole.OVER else [LeadershipStep.LOOK]

    def changed(self) -> list[LeadershipStep]:
        """Handle a possible change of the node."""
        return [] if self.role is LeadershipRole.OVER else [LeadershipStep.LOOK]

    def lost(self) -> list[LeadershipStep]:
        """Handle the end of the session and of every node it owned."""
        return self._end()

    def _end(self) -> list[LeadershipStep]:
        if self.role is LeadershipRole.OVER:
            return []
        self.role = LeadershipRole.OVER
        return [LeadershipStep.END]
