"""Election of the topology master: a state machine over the content of the store.

::

    STANDBY ──no master node──▶ CANDIDATE ──transaction done──▶ LEADING ◀──node still mine── SUSPENDED
       ▲                            │ refused                    │   └────session suspended─────▶ │
       └────────────────────────────┴──── session lost, node not mine, higher epoch seen ─────────┘

Standing for election is one transaction: create the ephemeral master node *and* raise the epoch by compare-and-set. So
at most one process holds the node, each holder has an epoch of its own, and epochs only grow. If the store did not
answer, the outcome is unknown; the next read tells (the node holds the location and the epoch, which no other process
can write). A process that still acts as leader after its node is gone is harmless: each of its writes checks the node's
ownership.

SUSPENDED decides nothing; it may still answer. A higher epoch, seen anywhere, ends leadership at once.
"""

from __future__ import annotations

from enum import Enum

from topology_master.core.events import (
    Campaign,
    Effect,
    LogNote,
    ReadStore,
    Resign,
    Session,
    StoreSnapshot,
    WriteResult,
)


class MasterRole(Enum):
    """Role of this process in the election."""

    STANDBY = "standby"
    CANDIDATE = "candidate"
    LEADING = "leading"
    SUSPENDED = "suspended"


class Mastership:
    """Part of one process in the election of the topology master.

    ``identity`` is (host, port, pid) as written into the master node.
    """

    def __init__(self, identity: tuple[str, int, int]) -> None:
        self._identity = identity
        self.role = MasterRole.STANDBY
        self.epoch = 0
        self._highest_seen = 0
        self._campaign_epoch = 0
        self._over = 0  # epochs up to this one are never taken up again
        self._connected = True

    @property
    def acting(self) -> bool:
        """True if stream managers may take this process for the master."""
        return self.role in (MasterRole.LEADING, MasterRole.SUSPENDED)

    @property
    def may_decide(self) -> bool:
        """True if decisions are allowed."""
        return self.role is MasterRole.LEADING

    def read(self, stored: StoreSnapshot) -> list[Effect]:
        """Handle a read of the store and return the effects."""
        self._highest_seen = max(self._highest_seen, stored.epoch, stored.master.epoch if stored.master else 0)
        if self.acting and self._highest_seen > self.epoch:
            return self._step_down("another master leads")
        if self.role is MasterRole.CANDIDATE or not self._connected:
            return []
        if self.acting:
            if not self._is_mine(stored):
                return self._step_down("another master leads" if stored.master else "the master node was removed")
            self.role = MasterRole.LEADING
            return []
        if stored.master is None:
            return self._campaign(stored)
        if self._is_mine(stored):
            if stored.master.epoch > self._over and stored.master.epoch >= self._highest_seen:
                # An earlier try succeeded although the store did not say so.
                return self._lead(stored.master.epoch)
            return [Resign("a master node of an epoch that is over")]
        return []

    def campaign_ended(self, epoch: int, result: WriteResult) -> list[Effect]:
        """Handle the result of the ``Campaign`` transaction and return the effects."""
        if self.role is not MasterRole.CANDIDATE or epoch != self._campaign_epoch:
            return [Resign("an election that was given up"), ReadStore()] if result is WriteResult.DONE else []
        if result is WriteResult.DONE and epoch >= self._highest_seen:
            return self._lead(epoch)
        self.role = MasterRole.STANDBY
        return [Resign("a higher epoch was seen"), ReadStore()] if result is WriteResult.DONE else [ReadStore()]

    def not_owner(self) -> list[Effect]:
        """Step down because a write was refused: the master node belongs to another session."""
        return self._step_down("the master node belongs to another session", resign=False) if self.acting else []

    def session_changed(self, session: Session) -> list[Effect]:
        """Handle a change of the store session and return the effects."""
        self._connected = session is Session.CONNECTED
        if session is Session.CONNECTED:
            return [ReadStore()]
        if session is Session.SUSPENDED:
            if self.role is MasterRole.LEADING:
                self.role = MasterRole.SUSPENDED
                return [LogNote("the state store does not answer: deciding nothing until it does")]
            return []
        # A node of the lost session may stand for a moment; what it says of our epochs is over.
        if self.acting:
            effects = self._step_down("the store session is lost", resign=False)
        else:
            effects = []
            self.role = MasterRole.STANDBY
        self._over = max(self.epoch, self._campaign_epoch)
        return [*effects, ReadStore()]  # the next operation begins a new session

    def epoch_seen(self, epoch: int) -> list[Effect]:
        """Handle an epoch that another process has mentioned; a higher one ends leadership."""
        if epoch <= self._highest_seen:
            return []
        self._highest_seen = epoch
        if self.acting and epoch > self.epoch:
            return self._step_down(f"epoch {epoch} is higher than {self.epoch}")
        return []

    def _campaign(self, stored: StoreSnapshot) -> list[Effect]:
        self.role = MasterRole.CANDIDATE
        self._campaign_epoch = self._highest_seen + 1
        return [Campaign(self._campaign_epoch, stored.epoch_version)]

    def _lead(self, epoch: int) -> list[Effect]:
        # An answer may be told after the session was suspended: who wins then decides once the store answers again.
        self.role = MasterRole.LEADING if self._connected else MasterRole.SUSPENDED
        self.epoch = epoch
        self._highest_seen = max(self._highest_seen, epoch)
        return [LogNote(f"leading with epoch {epoch}", "__mastership_changes"), ReadStore()]

    def _step_down(self, reason: str, resign: bool = True) -> list[Effect]:
        self.role = MasterRole.STANDBY
        self._over = self.epoch
        effects: list[Effect] = [LogNote(f"stepping down from epoch {self.epoch}: {reason}", "__mastership_changes")]
        return [*effects, Resign(reason), ReadStore()] if resign else effects

    def _is_mine(self, stored: StoreSnapshot) -> bool:
        there = stored.master
        if there is None or (there.host, there.port, there.pid) != self._identity:
            return False
        return not self.acting or there.epoch == self.epoch

    def check(self) -> None:
        """Assert every invariant."""
        assert self.epoch <= self._highest_seen
        assert self._connected or not self.may_decide
        assert not self.acting or self.epoch == self._highest_seen
