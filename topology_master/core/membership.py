"""Registered stream managers, and the time since the last heartbeat of each.

Silence is counted in the master's own ticks, and no tick counts for more than ``MAX_STEP_MS``: a master that was
stopped for a minute finds the heartbeats still in its sockets and ends no lease.

A stream manager's incarnation is new, and greater, at each start. An older one than the newest known is a process that
has been replaced and must leave; the same one on a new link has merely reconnected.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import Enum

from heron_runtime.model.dataflow import Cause
from heron_runtime.model.plan import PlanVersion, StreamManagerInfo
from heron_runtime.wire.master import (
    NO_FLOW,
    NOBODY,
    Bottleneck,
    FlowStatus,
    Heartbeat,
    InstanceInfo,
    Register,
    StreamManagerStatus,
)

MAX_STEP_MS = 2_000


class TickClock:
    """Milliseconds in the master's own ticks, none of which counts for more than ``MAX_STEP_MS``."""

    def __init__(self) -> None:
        self.ms = 0
        self._last_tick_ms: int | None = None

    def advance(self, now_ms: int) -> int:
        """Advance to a tick at ``now_ms`` and return the step. The first tick only starts the clock."""
        step = 0 if self._last_tick_ms is None else min(now_ms - self._last_tick_ms, MAX_STEP_MS)
        self._last_tick_ms = now_ms
        self.ms += step
        return step


class RegistrationResult(Enum):
    """Result of a registration."""

    ACCEPTED = "accepted"
    REPLACED = "a newer stream manager of this container has registered"
    UNKNOWN_CONTAINER = "the packing plan has no such container"


@dataclass
class RegisteredStreamManager:
    """Stream manager that has registered. ``link`` is None after its connection ended."""

    info: StreamManagerInfo
    link: int | None
    silent_ms: int = 0
    plan: PlanVersion = field(default_factory=PlanVersion)
    causes: tuple[Cause, ...] = ()
    spouts_paused: bool = False
    instances: tuple[InstanceInfo, ...] = ()
    flow: FlowStatus = NO_FLOW


class Membership:
    """Stream managers of the containers in the packing plan."""

    def __init__(self, lease_ms: int) -> None:
        self._lease_ms = lease_ms
        self._containers: tuple[int, ...] = ()
        self._members: dict[int, RegisteredStreamManager] = {}
        self._newest: dict[int, int] = {}
        self._clock = TickClock()

    def expect(self, containers: Iterable[int], known: Iterable[StreamManagerInfo] = ()) -> list[int]:
        """Set the containers that may register.

        Args:
            containers: Numbers of the containers.
            known: Stream managers of the last plan; older incarnations are refused.

        Returns:
            Links of stream managers whose container is no longer in the plan.
        """
        self._containers = tuple(sorted(containers))
        for info in known:
            self._newest[info.container] = max(info.incarnation, self._newest.get(info.container, info.incarnation))
        gone = [n for n in self._members if n not in self._containers]
        return [link for n in gone if (link := self._members.pop(n).link) is not None]

    def register(self, link: int, message: Register) -> tuple[RegistrationResult, int | None]:
        """Record a registration.

        Returns:
            The result, and the link that the registration replaces, if any.
        """
        info = message.stream_manager
        if info.container not in self._containers:
            return RegistrationResult.UNKNOWN_CONTAINER, None
        if info.incarnation < self._newest.get(info.container, info.incarnation):
            return RegistrationResult.REPLACED, None
        self._newest[info.container] = info.incarnation
        old = self._members.get(info.container)
        self._members[info.container] = RegisteredStreamManager(
            info, link, plan=message.plan, instances=message.instances
        )
        return RegistrationResult.ACCEPTED, old.link if old is not None and old.link != link else None

    def newest(self, container: int) -> int | None:
        """Return the newest known incarnation of a container's stream manager, or None."""
        return self._newest.get(container)

    def heard(self, link: int, message: Heartbeat) -> RegisteredStreamManager | None:
        """Record a heartbeat; return None if the link belongs to no member."""
        member = self.member_on(link)
        if member is not None:
            member.silent_ms = 0
            member.plan, member.causes = message.plan, message.causes
            member.spouts_paused, member.instances = message.spouts_paused, message.instances
            member.flow = message.flow
        return member

    def holder(self) -> Bottleneck:
        """Return the bottleneck task that the stream managers report."""
        return max((m.flow.holder for m in self._members.values()), key=lambda h: h.seconds, default=NOBODY)

    def closed(self, link: int) -> None:
        """Record the end of a connection; the member stays until its lease ends or it reconnects."""
        member = self.member_on(link)
        if member is not None:
            member.link = None

    def advance(self, now_ms: int) -> list[RegisteredStreamManager]:
        """Advance the time and return the members whose lease has just ended.

        They are forgotten, their incarnations are not.
        """
        step = self._clock.advance(now_ms)
        lapsed = []
        for container, member in list(self._members.items()):
            member.silent_ms += step
            if member.silent_ms > self._lease_ms:
                lapsed.append(self._members.pop(container))
        return lapsed

    def clear(self) -> list[int]:
        """Remove all members, as after the loss of mastership. Return the open links."""
        links = self.links()
        self._members.clear()
        self._newest.clear()
        self._clock = TickClock()
        return links

    def member_on(self, link: int) -> RegisteredStreamManager | None:
        """Return the member on this link, or None."""
        return next((m for m in self._members.values() if m.link == link), None)

    def missing(self) -> list[int]:
        """Return the containers whose stream manager is not registered, in order."""
        return [n for n in self._containers if n not in self._members]

    def registrations(self) -> Sequence[StreamManagerInfo]:
        """Return the registered stream managers in order of container."""
        return [self._members[n].info for n in self._containers if n in self._members]

    def all_follow(self, version: PlanVersion) -> bool:
        """Return whether all stream managers are registered and follow this plan or a newer one."""
        return not self.missing() and all(member.plan >= version for member in self._members.values())

    def links(self) -> list[int]:
        """Return the open links in order of container."""
        return [m.link for _, m in sorted(self._members.items()) if m.link is not None]

    def status(self) -> tuple[StreamManagerStatus, ...]:
        """Return one entry for each container of the packing plan."""
        return tuple(self._status(number) for number in self._containers)

    def _status(self, container: int) -> StreamManagerStatus:
        member = self._members.get(container)
        if member is None:
            return StreamManagerStatus(container, registered=False)
        return StreamManagerStatus(
            container,
            member.link is not None,
            member.silent_ms / 1000,
            member.spouts_paused,
            member.causes,
            member.flow,
        )

    def check(self) -> None:
        """Assert every invariant."""
        links = self.links()
        assert len(links) == len(set(links)), "one link serves two members"
        for container, member in self._members.items():
            assert container in self._containers
            assert member.info.container == container
            assert member.info.incarnation == self._newest[container]
            assert 0 <= member.silent_ms <= self._lease_ms
