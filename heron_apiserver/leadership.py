"""Which of several api servers leads, as one of them sees it: a state machine over what the store says.

::

    STANDBY ──nobody leads──▶ CANDIDATE ──────told how it ended────▶ STANDBY ──the node is mine──▶ LEADING
                                                                                  still mine ▲      │ suspended
                                                                                             └── SUSPENDED
    from everywhere: session lost; from LEADING and SUSPENDED: the node is not mine ──▶ OVER

To stand is to make the ephemeral node of the cluster, with a claim that nobody else makes. Whether that succeeded is
told by the next look alone: so it does not matter whether the store's answer was lost. A claim counts for one session
only: who loses its session is OVER, and begins anew as another process, so nothing that is still under way in this one
is ever mixed with a second term.

Being LEADING is a belief, and harmless where it is wrong: each transaction checks the node (``FencedStore``). What no
transaction decides, which containers are started again, stands still while the session is SUSPENDED.
"""

from __future__ import annotations

from enum import Enum


class LeadershipRole(Enum):
    """What this process is."""

    STANDBY = "standby"
    CANDIDATE = "candidate"
    LEADING = "leading"
    SUSPENDED = "suspended"
    OVER = "over"


class LeadershipStep(Enum):
    """What the shell is to do."""

    LOOK = "look"  # read the node, then ``on_node_read``
    STAND = "stand"  # make the node with ``claim``, then ``on_claim_finished``, however it ended
    LEAD = "lead"
    PAUSE = "pause"
    RESUME = "resume"
    END = "end"  # of the process


class Leadership:
    """One process's part. ``claim`` is this process's, and no other's that ever was."""

    def __init__(self, claim: str) -> None:
        self.claim = claim
        self.role = LeadershipRole.STANDBY
        self._connected = True

    @property
    def acting(self) -> bool:
        """True from LEAD to END."""
        return self.role in (LeadershipRole.LEADING, LeadershipRole.SUSPENDED)

    def on_node_read(self, holder: str) -> list[LeadershipStep]:
        """The node was read: the claim in it, "" if there is none."""
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
        """The transaction ended: done, refused, or nobody knows."""
        if self.role is not LeadershipRole.CANDIDATE:
            return []
        self.role = LeadershipRole.STANDBY
        return [LeadershipStep.LOOK]

    def suspended(self) -> list[LeadershipStep]:
        """The store does not answer; the session may still stand."""
        self._connected = False
        if self.role is not LeadershipRole.LEADING:
            return []
        self.role = LeadershipRole.SUSPENDED
        return [LeadershipStep.PAUSE]

    def connected(self) -> list[LeadershipStep]:
        """The store answers, and the session is the one it was."""
        self._connected = True
        return [] if self.role is LeadershipRole.OVER else [LeadershipStep.LOOK]

    def changed(self) -> list[LeadershipStep]:
        """Something may have changed."""
        return [] if self.role is LeadershipRole.OVER else [LeadershipStep.LOOK]

    def lost(self) -> list[LeadershipStep]:
        """The session is over, and with it every node that it owned."""
        return self._end()

    def _end(self) -> list[LeadershipStep]:
        if self.role is LeadershipRole.OVER:
            return []
        self.role = LeadershipRole.OVER
        return [LeadershipStep.END]
