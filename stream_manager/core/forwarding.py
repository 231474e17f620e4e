"""Frames, acks and fails to the link that leads to their task; marks, bounds and the credit that hangs on them.

The heart of the data path: one dictionary look-up finds the link of a task, local or not; one push queues the frame.
Only a queue that crosses a mark costs more. ``dirty`` collects the links that have got something to send and
``renewals`` the credit that has fallen due, until the composition turns both into effects.
"""

from __future__ import annotations

from heronry.model.causes import Cause, CauseKind
from heronry.model.reasons import FailKind
from heronry.wire.data import Ack, Fail, Frame, Packet, Reason
from stream_manager.core.backpressure import Pressure, is_slow
from stream_manager.core.credit import Grant
from stream_manager.core.links import Destination, Link
from stream_manager.core.neighbours import LocalInstance, Peer
from stream_manager.core.routing import NOWHERE, Routes, roots_by_spout, tracked_count
from stream_manager.core.tracking import Tracking


class Forwarding:
    """Routes by the newest plan over the links of this container."""

    def __init__(self, container: int, tracking: Tracking, pressure: Pressure) -> None:
        self.container = container
        self.high = 1  # both marks come with the plan
        self.low = 0
        self.instances: dict[int, LocalInstance] = {}
        self.peers: dict[int, Peer] = {}
        self.blocked: set[int] = set()  # tasks whose queue here is over its bound
        self.dirty: dict[Link, None] = {}
        self.renewals: dict[Grant, None] = {}
        self.moved_tuples = 0
        self.moved_frames = 0
        self.largest_frame = 0
        self._links: dict[int, Link] = {}  # by task
        self._component: dict[int, str] = {}
        self._tracking = tracking
        self._pressure = pressure
        tracking.tell = self.verdict

    def set_routes(self, routes: Routes) -> None:
        """A new plan. What is queued for a task that lives elsewhere now goes there, in order."""
        old, self._links = self._links, {}
        self._component.update(routes.component)
        for task, container in routes.where.items():
            here = container == self.container
            self._links[task] = self.instances[task].link if here else self.peers[container].link
        for task, link in old.items():
            if self._links.get(task) is not link:
                self._clear_task(task)
                for frame, size, grant in link.withdraw(task):
                    self.forward(frame, size, grant, NOWHERE)

    def forward(self, frame: Frame, size: int, grant: Grant | None, came_from: int) -> None:
        """To the link of its task. A frame whose task is gone, or is said to be where the frame came from, ends here:
        its roots fail and its untracked tuples are counted."""
        link = self._links.get(frame.destination_task)
        if link is None or link.container == came_from != 0:
            self._end(frame, size, grant)
            return
        queue = link.push(frame, size, grant)
        self.dirty[link] = None
        if size > self.largest_frame:
            self.largest_frame = size
        if queue.bytes >= self.high:
            self._observe(link, queue)
        if link.container and link.bytes >= self.high:
            self.observe_link(link)

    def ack(self, message: Ack) -> None:
        """To the tracker of the spout task, here or at a peer."""
        link = self._links.get(message.task)
        if link is None:
            self._tracking.drop(len(message.roots) // 8)
        elif link.container:
            link.settlements.ack(message.task, message.roots, message.xors)
            self.dirty[link] = None
        else:
            self._tracking.ack(message)

    def fail(self, message: Fail) -> None:
        """To the tracker of the spout task, here or at a peer."""
        link = self._links.get(message.task)
        if link is None:
            self._tracking.drop(len(message.roots) // 8)
        elif link.container:
            link.settlements.fail(message.task, message.roots, message.reason)
            self.dirty[link] = None
        else:
            self._tracking.fail(message)

    def verdict(self, task: int, roots: bytes, reason: Reason | None) -> None:
        """From a tracker to its spout task."""
        instance = self.instances[task]
        instance.link.settlements.verdict(task, roots, reason)
        self.dirty[instance.link] = None

    def next_packet(self, link: Link) -> Packet | None:
        """Hand over the next packet of a link; see ``Link.next_packet``."""
        found = link.next_packet()
        if found is None:
            return None
        packet, grants = found
        for grant in grants:
            self.renewals[grant] = None
        for queue in list(link.marked):
            self._observe(link, queue)
        if link.pressed:
            self.observe_link(link)
        return packet

    def observe_all(self, link: Link) -> None:
        """The link was opened or closed, which changes who is slow."""
        for queue in link.destinations.values():
            self._observe(link, queue)
        if link.container:
            self.observe_link(link)

    def observe_link(self, link: Link) -> None:
        """Compare what waits for a peer's link as a whole with its marks."""
        slow = is_slow(link.sendable_bytes(), link.pressed, self.high, self.low)
        if slow != link.pressed:
            link.pressed = slow
            self._pressure.set_slow(Cause(CauseKind.LINK, "", 0, self.container, link.container), slow)

    def may_renew(self, instance: LocalInstance) -> bool:
        """False while a destination the instance feeds is over its bound."""
        return self.blocked.isdisjoint(instance.fed)

    def drop_peer(self, peer: Peer) -> None:
        """The plan has no such container any more."""
        peer.link.pressed = False
        self._pressure.set_slow(Cause(CauseKind.LINK, "", 0, self.container, peer.container), False)
        self.dirty.pop(peer.link, None)

    def check(self) -> None:
        """Assert every invariant."""
        for task, link in self._links.items():
            link.check()
            queue = link.destinations.get(task)
            assert (task in self.blocked) == (queue is not None and queue.blocked), "blocked tasks are known"
            if queue is not None:
                assert queue.blocked == (queue.bytes > 2 * self.high), "blocked is over the bound"
                cause = self._cause(task)
                assert (cause in self._pressure.own) == queue.pressed, "a slow queue is a cause"

    def _observe(self, link: Link, queue: Destination) -> None:
        # A link that is down is itself the cause: nothing is known of the tasks behind it.
        slow = is_slow(queue.bytes, queue.pressed, self.high, self.low) and (link.is_open or not link.container)
        if slow != queue.pressed:
            queue.pressed = slow
            self._pressure.set_slow(self._cause(queue.task), slow)
        blocked = queue.bytes > 2 * self.high
        if blocked and not queue.blocked:
            queue.blocked = True
            self.blocked.add(queue.task)
        elif queue.blocked and not blocked:
            queue.blocked = False
            self._unblock(queue.task)
        if slow or blocked:
            link.marked[queue] = None
        else:
            link.marked.pop(queue, None)

    def _unblock(self, task: int) -> None:
        self.blocked.discard(task)
        for instance in self.instances.values():
            if task in instance.fed:
                self.renewals[instance.upload] = None

    def _clear_task(self, task: int) -> None:
        self._pressure.set_slow(self._cause(task), False)
        if task in self.blocked:
            self._unblock(task)

    def _cause(self, task: int) -> Cause:
        return Cause(CauseKind.TASK, self._component.get(task, ""), task, self.container)

    def _end(self, frame: Frame, size: int, grant: Grant | None) -> None:
        self.moved_frames += 1
        self.moved_tuples += frame.count - tracked_count(frame)
        if grant is not None:
            grant.use(size)
            self.renewals[grant] = None
        component = self._component.get(frame.destination_task, "")
        for spout, roots in roots_by_spout(frame):
            self.fail(Fail(spout, roots, Reason(FailKind.MOVED, component, frame.destination_task)))
