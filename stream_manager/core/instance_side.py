"""The side of the stream manager that faces its local instances: hellos, packets, upload credit, plans, pauses."""

from __future__ import annotations

from heronry.model.causes import Cause, CauseKind
from heronry.wire.control import Credit, InstanceHello, Leave, Pause, PlanUpdate, StreamManagerHello
from heronry.wire.data import Packet
from heronry.wire.master import InstanceInfo
from stream_manager.core.backpressure import Pressure
from stream_manager.core.credit import Grant
from stream_manager.core.effects import End, ToInstance
from stream_manager.core.forwarding import Forwarding
from stream_manager.core.links import Link
from stream_manager.core.neighbours import LocalInstance, ProtocolViolation
from stream_manager.core.outcome import Outcome
from stream_manager.core.routing import Routes
from stream_manager.core.tracking import Tracking


class InstanceSide:
    """All instances of one container. ``hello`` is what each of them is told first."""

    def __init__(
        self,
        hello: StreamManagerHello,
        upload_window: int,
        flow: Forwarding,
        tracking: Tracking,
        pressure: Pressure,
        outcome: Outcome,
    ) -> None:
        self.routes: Routes | None = None
        self.epoch = 0
        self.scope = "upstream"
        self.partitioned = False
        self.upload_window = upload_window
        self._hello = hello
        self._flow = flow
        self._tracking = tracking
        self._pressure = pressure
        self._out = outcome

    def hello(self, connection: int, hello: InstanceHello) -> None:
        """A new connection; it replaces an older one of the same task."""
        instance = self.of_task(hello.task)
        if instance.connection is not None:
            if instance.pid != hello.pid:
                self._out.add(ToInstance(instance.connection, Leave("another process has taken this task")))
            self._out.add(End(instance.connection, f"task {hello.task}: replaced by a newer connection"))
            self.lost(instance)
        if instance.incarnation != hello.incarnation:
            instance.link.settlements.drop_verdicts()
        instance.connection, instance.incarnation, instance.pid = connection, hello.incarnation, hello.pid
        instance.incoming.expected = 1
        instance.upload.restart(self._flow.may_renew(instance))
        self._tracking.begin(hello.task, hello.incarnation)
        self._out.add(ToInstance(connection, self._hello), ToInstance(connection, Credit(instance.upload.limit)))
        self._give_plan(instance)

    def connected(self, connection: int, task: int) -> LocalInstance | None:
        """The instance, if this is its connection now."""
        instance = self._flow.instances.get(task)
        return instance if instance is not None and instance.connection == connection else None

    def of_task(self, task: int) -> LocalInstance:
        """The instance of a task, known or new."""
        instance = self._flow.instances.get(task)
        if instance is None:
            upload = Grant(self.upload_window, 0, task, open_now=False)
            instance = self._flow.instances[task] = LocalInstance(task, Link(task=task), upload)
        return instance

    def lost(self, instance: LocalInstance) -> None:
        """The connection has ended."""
        instance.connection = None
        instance.has_plan = False
        instance.told = None
        instance.link.close()
        self._flow.observe_all(instance.link)

    def packet(self, instance: LocalInstance, packet: Packet) -> None:
        """Take a packet. Raises ProtocolViolation; what came before the fault in the packet is done."""
        task, flow = instance.task, self._flow
        instance.incoming.accept(packet)
        if packet.verdicts:
            raise ProtocolViolation("only trackers give verdicts")
        for init in packet.inits:
            self._tracking.init(task, init)
        for ack in packet.acks:
            flow.ack(ack)
        for fail in packet.fails:
            flow.fail(fail)
        if not packet.frames:
            return
        upload, fed, traffic = instance.upload, instance.fed, instance.incoming.traffic
        for frame in packet.frames:
            if frame.source_task != task:
                raise ProtocolViolation(f"a frame of task {frame.source_task}")
            size = frame.size_bytes()
            if not upload.receive(size):
                raise ProtocolViolation(f"frames without credit: {upload.received} of {upload.limit} bytes")
            upload.use(size)
            traffic.bytes += size
            fed.add(frame.destination_task)
            flow.forward(frame, size, None, 0)
        flow.renewals[upload] = None

    def renew(self, grant: Grant) -> None:
        """Give upload credit if half of it is used up and nothing the instance feeds is over its bound."""
        instance = self._flow.instances[grant.task]
        if instance.connection is not None and self._flow.may_renew(instance):
            limit = grant.renewal()
            if limit is not None:
                self._out.add(ToInstance(instance.connection, Credit(limit)))

    def give_plans(self) -> None:
        """There is a new plan."""
        for instance in self._flow.instances.values():
            instance.has_plan = False
            self._give_plan(instance)

    def pause_spouts(self) -> None:
        """Tell the spouts whose causes have changed."""
        if self.routes is None or not self._pressure.changed:
            return
        self._pressure.changed = False
        for task in self.routes.local_spouts:
            instance = self._flow.instances[task]
            if instance.connection is None or not instance.has_plan:
                continue
            causes = self._causes_of(task)
            if causes != instance.told:
                instance.told = causes
                self._out.add(ToInstance(instance.connection, Pause(bool(causes), causes)))

    def spouts_paused(self) -> bool:
        """True if any local spout is told to pause."""
        return any(instance.told for instance in self._flow.instances.values())

    def infos(self) -> tuple[InstanceInfo, ...]:
        """Who is connected, for the master."""
        component = {} if self.routes is None else self.routes.component
        return tuple(
            InstanceInfo(i.task, component.get(i.task, ""), i.pid, i.incarnation or 0)
            for _, i in sorted(self._flow.instances.items())
            if i.connection is not None
        )

    def check(self) -> None:
        """Assert every invariant."""
        for instance in self._flow.instances.values():
            assert not instance.link.is_open or instance.connection is not None, "an open link has a connection"
        if self.routes is None:
            return
        for task in self.routes.local_spouts:
            instance = self._flow.instances[task]
            if instance.connection is not None and instance.has_plan:
                assert instance.told == self._causes_of(task), "paused if and only if there are causes"

    def _give_plan(self, instance: LocalInstance) -> None:
        routes = self.routes
        if routes is not None and instance.connection is not None and instance.task in routes.local_tasks:
            instance.has_plan = self._pressure.changed = True
            self._out.add(ToInstance(instance.connection, PlanUpdate(routes.plan, self.epoch)))

    def _causes_of(self, spout: int) -> tuple[Cause, ...]:
        assert self.routes is not None
        causes = self._pressure.causes_for(self.routes.component[spout], self.routes, self.scope)
        if self.partitioned:
            causes += (Cause(CauseKind.LINK, "", 0, self.routes.container, 0),)
        return causes
