"""When to restore, and when to go on: the master's part in recovery.

::

    RESTORING ──every place has restored g──▶ RUNNING(g), its members named
        ▲  │ a second fault: g + 1                │ a place is lost, its channel broke, a record failed, the owner asks
        └──┴──────────── g + 1, from the last complete checkpoint ◀──┘
                              │ too many for reasons that come again
                              ▼
                            FAILED, with its cause

Theory of operation. A generation is one life of the whole topology between two restores. Whatever is lost of it, a
process, a connection, a frame, ends it for all: the next one begins everywhere from the last complete checkpoint, which
is one that left nothing on the way. Starting a topology is restoring generation 1 from the initial state. Nobody
processes anything before every place has reported that it is restored, and then only the very processes that reported;
so a process that was cut off and lives cannot take part, whenever it wakes (S7). Lost processes and links are tried
again for ever; what user code or the storage causes comes again, and ends in FAILED after a few times.
"""

from __future__ import annotations

from collections.abc import Iterable

from heron_runtime.model.checkpoints import TaskReport
from heron_runtime.model.generations import Generation, Member, Phase, Place

MOST_FAILURES = 5  # restores in a row, without a complete checkpoint between them, for reasons that come again


class Generations:
    """Of one master. ``heard`` and ``lost`` are facts; ``wanted`` is the generation to store next, if any."""

    def __init__(self, stored: Generation) -> None:
        self.generation = stored
        self._places: frozenset[Place] = frozenset()
        self._members: dict[Place, int] = {}
        self._restored: dict[Place, int] = {}
        self._newest: dict[Place, int] = {}
        self._lost = self._failed = ""

    def read(self, stored: Generation, places: Iterable[Place]) -> None:
        """What the plan in the store says, and which places it has."""
        if stored.number != self.generation.number:
            self._restored.clear()
            self._lost = self._failed = ""
        self.generation = stored
        self._places = frozenset(places)
        self._members = {member.place: member.incarnation for member in stored.members}

    def refuses(self, place: Place, incarnation: int) -> bool:
        """Whether this process has been replaced: it shall leave."""
        return incarnation < max(self._newest.get(place, 0), self._members.get(place, 0))

    def heard(self, place: Place, incarnation: int, report: TaskReport) -> None:
        """A report from a place of the plan, of a process that is not refused."""
        self._newest[place] = incarnation
        now = self.generation
        if place not in self._places or now.phase is Phase.FAILED:
            return
        if now.phase is Phase.RUNNING and incarnation != self._members.get(place):
            self.lost(place, "it was started anew")
        elif self._restored.get(place, incarnation) != incarnation:
            self.lost(place, "it was started anew while the topology was being restored")
        if report.generation != now.number:
            return
        if report.failed:
            self._failed = self._failed or f"{place}: {report.failed}"
        if report.lost:
            self.lost(place, report.lost)
        if report.restored and now.phase is Phase.RESTORING:
            self._restored[place] = incarnation

    def lost(self, place: Place, why: str) -> None:
        """A place of the plan cannot be counted on: it is silent, or what came from it is not whole."""
        if place in self._places:
            self._lost = self._lost or f"{place}: {why}"

    def silent(self, place: Place, why: str) -> None:
        """Nothing is heard from a place. Where nothing is restored yet it is waited for, or g + 1 would follow g + 1.
        Who comes next may have a lower incarnation: those of a task are of its host's clock, which may begin anew."""
        self._newest.pop(place, None)
        if self.generation.phase is Phase.RUNNING or place in self._restored:
            self.lost(place, why)

    @property
    def failed(self) -> bool:
        """Whether the generation ends for a reason that comes again: user code, or the storage."""
        return bool(self._failed)

    @property
    def missing(self) -> tuple[Place, ...]:
        """Places that have not restored yet, in order; empty when nothing is being restored."""
        if self.generation.phase is not Phase.RESTORING:
            return ()
        return tuple(sorted(self._places - set(self._restored)))

    def wanted(self, complete: int, *, asked: str = "") -> Generation | None:
        """The generation to store in place of the one that stands, or None. ``complete``: the last complete
        checkpoint, which the transaction checks; ``asked``: why the owner wants a restore, if so."""
        now = self.generation
        if now.phase is Phase.FAILED:
            return Generation(now.number + 1, Phase.RESTORING, complete, cause=asked) if asked else None
        if self._failed or self._lost or asked:
            before = 0 if complete > now.restore_from else now.failures  # a complete checkpoint makes up for all
            failures = before + bool(self._failed)
            cause = self._failed or self._lost or asked
            phase = Phase.FAILED if failures > MOST_FAILURES else Phase.RESTORING
            return Generation(now.number + 1, phase, complete, (), failures, cause)
        if now.phase is Phase.RESTORING and self._places and not self.missing:
            members = tuple(Member(place, incarnation) for place, incarnation in sorted(self._restored.items()))
            return Generation(now.number, Phase.RUNNING, now.restore_from, members, now.failures, now.cause)
        return None

    def check(self) -> None:
        """Assert every invariant."""
        now = self.generation
        assert now.number > 0
        assert (now.phase is Phase.RUNNING) == bool(now.members), "members are named when it runs, and only then"
        assert set(self._restored) <= self._places or now.phase is not Phase.RESTORING
