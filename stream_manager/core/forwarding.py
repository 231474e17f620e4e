"""Data path of the stream manager: frames, acks and fails go to the link of their task.

One dictionary look-up finds the link of a task, local or remote, and one push queues the frame. Only a queue that
crosses a water mark costs more. ``ConnectionTable.dirty`` collects the neighbours that have something to send, and
``due_grants`` the credit to renew, until the end of the event turns both into effects.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from heron_runtime.model.dataflow import Cause, CauseKind, FailKind
from heron_runtime.model.settings import Keys, setting
from heron_runtime.wire.control import TaskCredit
from heron_runtime.wire.data import Ack, Fail, Frame, Packet, Reason
from stream_manager.core.ack_tracker import column
from stream_manager.core.backpressure import BackpressureCauses, is_slow
from stream_manager.core.connections import ConnectionTable, LocalInstance, Neighbour, Peer
from stream_manager.core.credit import CreditGrant
from stream_manager.core.links import DestinationQueue, Link
from stream_manager.core.plan import PlanRoutes
from stream_manager.core.trackers import AckTrackers, roots_of


class FrameForwarder:
    """Routes frames, acks and fails by the newest plan over the links of one container."""

    def __init__(
        self, container: int, connections: ConnectionTable, trackers: AckTrackers, causes: BackpressureCauses
    ) -> None:
        self.high = 1  # high and low water mark, set by the plan
        self.low = 0
        self.blocked: set[int] = set()  # tasks whose queue is over its bound
        self.moved_tuples = 0
        self.moved_frames = 0
        self.stale: dict[int, int] = {}  # stream to dropped tuples of closed generations
        self.largest_frame = 0
        self._container = container
        self._renewals: dict[CreditGrant, None] = {}
        self._through: dict[int, Neighbour] = {}  # task to the neighbour that leads to it
        self._component: dict[int, str] = {}
        self._connections = connections
        self._trackers = trackers
        self._causes = causes

    def set_routes(self, routes: PlanRoutes) -> None:
        """Apply a new plan. Frames queued by local instances for a task that has moved follow it, in order."""
        config, connections = routes.plan.topology.config, self._connections
        self.high = setting(config, Keys.TOPOLOGY_BACKPRESSURE_HIGH_WATERMARK_BYTES)
        self.low = min(self.high, setting(config, Keys.TOPOLOGY_BACKPRESSURE_LOW_WATERMARK_BYTES))
        self._component.update(routes.component)
        old = self._through
        self._through = {
            task: connections.instance(task) if container == self._container else connections.peer(container)
            for task, container in routes.where.items()
        }
        for task, neighbour in old.items():
            if self._through.get(task) is not neighbour:
                self._clear_task(task)
                for frame, weight, grant in neighbour.link.withdraw(task):
                    self.forward(frame, weight, grant)

    def drop_queued(self) -> None:
        """Drop all queued frames: another generation has begun."""
        for neighbour in self._connections.all():
            link = neighbour.link
            for task in link.destinations:
                self._clear_task(task)
                for frame, weight, grant in link.withdraw(task):
                    self.drop(frame, weight, grant)
            self._update_link_cause(link)

    def drop(self, frame: Frame, weight: int, grant: CreditGrant | None) -> None:
        """Drop a frame of a closed generation. The restore repeats it."""
        self.stale[frame.stream] = self.stale.get(frame.stream, 0) + frame.count
        if grant is not None:
            grant.use(weight)
            self._renewals[grant] = None

    def forward(self, frame: Frame, weight: int, grant: CreditGrant | None) -> None:
        """Queue a frame on the link of its task.

        A frame for an unknown task is dropped: its roots fail and its untracked tuples are counted. So is the frame of
        a peer for a task that has left this container, since frames sent by the newer plan would overtake it.

        Args:
            frame: The frame.
            weight: Its weight.
            grant: Credit of the peer that sent it, or None for a local instance.
        """
        neighbour = self._through.get(frame.destination_task)
        if neighbour is None or (grant is not None and neighbour.link.container):
            self._reject_moved(frame, weight, grant)
            return
        link = neighbour.link
        queue = link.push(frame, weight, grant)
        self._connections.dirty[neighbour] = None
        if weight > self.largest_frame:
            self.largest_frame = weight
        if queue.weight >= self.high:
            self._update_queue_cause(link, queue)
        if link.weight >= self.high:
            self._update_link_cause(link)

    def ack(self, message: Ack) -> None:
        """Pass an ack to the tracker of its spout task, here or at a peer.

        Raises:
            ProtocolViolation: The ack is malformed.
        """
        neighbour = self._through.get(message.task)
        if isinstance(neighbour, Peer):
            roots_of(message)  # checked here: at the peer a malformed ack would end the shared link
            neighbour.link.settlements.ack(message.task, message.roots, message.xors)
            self._connections.dirty[neighbour] = None
        else:
            self._trackers.ack(message)

    def fail(self, message: Fail) -> None:
        """Pass a fail to the tracker of its spout task, here or at a peer.

        Raises:
            ProtocolViolation: The fail is malformed.
        """
        neighbour = self._through.get(message.task)
        if isinstance(neighbour, Peer):
            roots_of(message)
            neighbour.link.settlements.fail(message.task, message.roots, message.reason)
            self._connections.dirty[neighbour] = None
        else:
            self._trackers.fail(message)

    def next_packet(self, neighbour: Neighbour) -> Packet | None:
        """Return the next packet for a neighbour, or None; see ``Link.next_packet``."""
        link = neighbour.link
        waiting = link.next_packet()
        if waiting is None:
            return None
        packet, grants = waiting
        for grant in grants:
            self._renewals[grant] = None
        for queue in list(link.marked):
            self._update_queue_cause(link, queue)
        if link.pressed:
            self._update_link_cause(link)
        return packet

    def open(self, neighbour: Neighbour) -> None:
        """Open the link of a neighbour."""
        neighbour.link.open()
        self._connections.dirty[neighbour] = None
        self._update_causes(neighbour.link)

    def close(self, neighbour: Neighbour) -> None:
        """Close the link of a neighbour. The restore repeats the frames lost with a connection of a generation."""
        neighbour.link.close(self.stale if neighbour.generation else None)
        self._update_causes(neighbour.link)

    def credit(self, neighbour: Neighbour, limits: Iterable[TaskCredit]) -> None:
        """Apply credit from the other end."""
        link = neighbour.link
        for limit in limits:
            link.grant(limit.task, limit.limit_bytes, limit.taken_bytes)
        self._connections.dirty[neighbour] = None
        if link.weight >= self.high:
            self._update_link_cause(link)

    def mark_used(self, grant: CreditGrant) -> None:
        """Check at the end of the event whether this credit is to be renewed."""
        self._renewals[grant] = None

    def take_due_grants(self) -> list[CreditGrant]:
        """Return the credit that was used or unblocked since the last call."""
        renewals, self._renewals = self._renewals, {}
        return list(renewals)

    def may_renew(self, instance: LocalInstance) -> bool:
        """Return False while a destination of the instance is over its bound."""
        return self.blocked.isdisjoint(instance.fed)

    def drop_peer(self, peer: Peer) -> None:
        """Remove the causes of a peer that has left the plan."""
        peer.link.pressed = False
        self._causes.set_slow(self._link_cause(peer.link), False)

    def check(self) -> None:
        """Assert every invariant."""
        assert not self._renewals, "credit is renewed by the end of each event"
        for neighbour in dict.fromkeys(self._through.values()):
            neighbour.link.check()
        own = self._causes.own
        for task, neighbour in self._through.items():
            link = neighbour.link
            table = self._connections.peers if link.container else self._connections.instances
            assert table.get(link.container or task) is neighbour, "each task has a known neighbour"
            queue = link.destinations.get(task)
            over = queue is not None and queue.weight > 2 * self.high
            assert (task in self.blocked) == over, "tasks over their bound are known"
            if queue is not None:
                assert (queue in link.marked) == (queue.pressed or over), "marked queues are known"
                assert (bool(own) and self._cause(task) in own) == queue.pressed, "a slow queue is a cause"

    def _update_causes(self, link: Link) -> None:
        """Compare all queues of a link with their marks, after it was opened or closed."""
        for queue in link.destinations.values():
            neighbour = self._through.get(queue.task)
            if neighbour is not None and neighbour.link is link:
                self._update_queue_cause(link, queue)
        self._update_link_cause(link)

    def _update_link_cause(self, link: Link) -> None:
        """Compare the weight queued for the link of a peer with its marks."""
        if not link.container:
            return
        slow = is_slow(link.sendable_weight(), link.pressed, self.high, self.low)
        if slow != link.pressed:
            link.pressed = slow
            self._causes.set_slow(self._link_cause(link), slow)

    def _update_queue_cause(self, link: Link, queue: DestinationQueue) -> None:
        # A closed link is itself the cause: the state of the tasks behind it is unknown.
        slow = is_slow(queue.weight, queue.pressed, self.high, self.low) and (link.is_open or not link.container)
        if slow != queue.pressed:
            queue.pressed = slow
            self._causes.set_slow(self._cause(queue.task), slow)
        blocked = queue.weight > 2 * self.high
        if blocked:
            self.blocked.add(queue.task)
        elif queue.task in self.blocked:
            self._unblock(queue.task)
        if slow or blocked:
            link.marked[queue] = None
        else:
            link.marked.pop(queue, None)

    def _unblock(self, task: int) -> None:
        self.blocked.discard(task)
        for instance in self._connections.instances.values():
            if task in instance.fed:
                self._renewals[instance.upload] = None

    def _clear_task(self, task: int) -> None:
        self._causes.set_slow(self._cause(task), False)
        if task in self.blocked:
            self._unblock(task)

    def _cause(self, task: int) -> Cause:
        return Cause(CauseKind.TASK, self._component.get(task, ""), task, self._container)

    def _link_cause(self, link: Link) -> Cause:
        return Cause(CauseKind.LINK, "", 0, self._container, link.container)

    def _reject_moved(self, frame: Frame, weight: int, grant: CreditGrant | None) -> None:
        self.moved_frames += 1
        self.moved_tuples += frame.count - tracked_count(frame)
        if grant is not None:
            grant.use(weight)
            self._renewals[grant] = None
        component = self._component.get(frame.destination_task, "")
        for spout, roots in roots_by_spout(frame):
            self.fail(Fail(spout, roots, Reason(FailKind.MOVED, component, frame.destination_task)))


def roots_by_spout(frame: Frame) -> list[tuple[int, bytes]]:
    """Return the distinct roots of a frame, grouped by the spout task that opened them."""
    if not frame.roots:
        return []
    roots = np.unique(column(frame.roots))
    tasks = roots >> np.uint64(48)
    starts = np.flatnonzero(np.diff(tasks, prepend=np.uint64(0)) != 0)  # tasks count from 1
    groups = np.split(roots, starts[1:])
    return [(int(group[0]) >> 48, group.tobytes()) for group in groups]


def tracked_count(frame: Frame) -> int:
    """Return the number of tuples of a frame that belong to at least one root."""
    if not frame.offsets:
        return frame.count if frame.roots else 0
    return int(np.count_nonzero(np.diff(np.frombuffer(frame.offsets, "<u4"))))
