"""The generation in force: which connections carry frames, and what is said of it to master and instances.

Theory of operation. Where state is kept, a frame belongs to the generation of the plan and has no mark of its own: the
*connections* belong to it. An instance's hello names its generation, and so do both hellos of two peers; frames are
carried while that is the plan's. So whoever changes to another plan drops what is queued, listens to instances of
older generations without taking their frames, and ends the connections to peers, which are made again.

The first connection of a generation that ends takes frames with it that nobody sends again: it is reported as ``lost``,
and from then on nothing opens in that generation. Nor does it where the plan says that it runs with another process in
this place: a stream manager that comes back finds such a plan on its disk, and carries *nothing* until the next one.

Generation 0 is that of a topology whose state is not kept: connections come and go, and nothing is reported but how
far its tasks are in an update.
"""

from __future__ import annotations

from heron_runtime.model.checkpoints import NO_WISH, CheckpointWish, TaskReport
from heron_runtime.model.generations import Phase, stream_manager_of, task_place
from heron_runtime.model.plan import StreamManagerInfo
from heron_runtime.wire.master import PlaceReport
from stream_manager.core.connections import Connections, LocalInstance, Neighbour
from stream_manager.core.routing import Routes

NONE_CARRIED = -1


class InForce:
    """What one stream manager goes by, and what it has to say of it."""

    def __init__(self, info: StreamManagerInfo, connections: Connections) -> None:
        self.named = 0  # by the plan
        self.number = 0  # whose frames are carried; NONE_CARRIED: nobody's
        self.lost = ""  # why nothing opens in it any more
        self.wish = NO_WISH  # what the master has said last; it stays in force while there is none
        self._place = stream_manager_of(info.container)
        self._incarnation = info.incarnation
        self._connections = connections
        self._peers: tuple[int, ...] = ()
        self._own = TaskReport(0)
        self._told = True  # the master has heard all reports as they are

    def follow(self, routes: Routes) -> bool:
        """A new plan; True if it is for other connections than before to carry frames."""
        generation, before = routes.plan.generation, self.number
        self._peers = routes.peers
        if generation.number != self.named:
            self.number = self.named = generation.number
            self.lost = ""
        member = generation.incarnation(self._place)
        if self.named and generation.phase is Phase.RUNNING and member != self._incarnation:
            self.number = NONE_CARRIED
            self.lost = self.lost or f"generation {self.named} runs with another process in this place"
        return self.number != before

    def mismatch(self, *generations: int) -> str:
        """Why hellos that name these generations do not go together; empty if they do."""
        other = next((number for number in generations if number != self.named), None)
        return "" if other is None else f"generation {other} was named, and {self.named} is in force here"

    def over(self) -> str:
        """Why nothing opens in the generation in force any more; empty if it may."""
        return f"generation {self.named} is over: {self.lost}" if self.lost else ""

    def ended(self, neighbour: Neighbour) -> None:
        """A connection that carried frames, or was about to, has ended."""
        if self.named and neighbour.generation == self.named:
            self.lost = self.lost or f"the connection to {neighbour} ended"

    def hear(self, wish: CheckpointWish) -> bool:
        """What the master wants; True if that is news. One that has no generation yet says nothing."""
        news = bool(wish.generation) and wish != self.wish
        if news:
            self.wish = wish
        return news

    def report(self, instance: LocalInstance, report: TaskReport | None) -> None:
        """An instance's word, which is kept with its connection; None: that has ended."""
        if instance.report != report:
            instance.report = report
            self._told = False

    # What the master is told.

    def news(self) -> bool:
        """True if a report has changed since the master was told last."""
        if not self.named:
            return not self._told
        restored = self.number == self.named and not self.lost and self._all_open()
        own = self._own
        if (own.generation, own.restored, own.lost) != (self.named, restored, self.lost):
            self._own = TaskReport(self.named, restored, lost=self.lost)
            self._told = False
        return not self._told

    def tell(self) -> tuple[PlaceReport, ...]:
        """All reports as they are, its own first where state is kept; the master hears them now."""
        self.news()
        self._told = True
        own = (PlaceReport(self._place, self._incarnation, self._own),) if self.named else ()
        return (
            *own,
            *(
                PlaceReport(task_place(task), instance.incarnation or 0, instance.report)
                for task, instance in sorted(self._connections.instances.items())
                if instance.report is not None
            ),
        )

    def check(self) -> None:
        """Assert every invariant."""
        assert self.number in (self.named, NONE_CARRIED), "no other generation is carried than the plan's"
        assert self.named or not self.lost, "where state is not kept nothing is over"
        for neighbour in self._connections.all():
            carried = neighbour.generation == self.number
            assert carried or not neighbour.link.is_open, f"{neighbour} hears frames of another generation"
        for instance in self._connections.instances.values():
            assert instance.report is None or instance.connection is not None, "reports go with their connections"

    def _all_open(self) -> bool:
        peers = self._connections.peers
        return all(container in peers and peers[container].link.is_open for container in self._peers)
