"""The side of the stream manager that faces its local instances: hellos, packets, upload credit, plans, pauses."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from heron_runtime.model.causes import Cause
from heron_runtime.model.checkpoints import TaskReport
from heron_runtime.wire.control import (
    Credit,
    InCall,
    InstanceControl,
    InstanceHello,
    Leave,
    Pause,
    PeerControl,
    PlanUpdate,
    StreamManagerHello,
    TaskCredit,
    TaskWeight,
    TaskWeights,
)
from heron_runtime.wire.data import Packet
from heron_runtime.wire.master import InstanceInfo
from stream_manager.core.backpressure import Episodes, Pressure
from stream_manager.core.connections import Connections, LocalInstance, ProtocolViolation
from stream_manager.core.credit import Grant, Weights
from stream_manager.core.events import EffectBuffer, End, Send
from stream_manager.core.forwarding import Forwarding
from stream_manager.core.plan import InForce, Routes, Standing
from stream_manager.core.trackers import Tracking


class InstanceSide:
    """Speaks with the instances of one container. ``hello`` is what each of them is told first."""

    def __init__(
        self,
        hello: StreamManagerHello,
        connections: Connections,
        flow: Forwarding,
        tracking: Tracking,
        pressure: Pressure,
        weights: Weights,
        generation: InForce,
        effects: EffectBuffer,
    ) -> None:
        self.paused_ms = 0  # time with a spout told to pause
        self.episodes = Episodes()
        self.clock_ms = 0  # of the episodes: the time that has passed
        self._hello = hello
        self._connections = connections
        self._flow = flow
        self._tracking = tracking
        self._pressure = pressure
        self._weights = weights
        self._generation = generation
        self._effects = effects
        self._revision = -1  # of the pressure when the spouts were last told; -1: tell them

    def hello(self, connection: int, hello: InstanceHello, standing: Standing) -> None:
        """A new connection; it replaces an older one of the same task, unless it comes from an older process."""
        instance = self._connections.instance(hello.task)
        if hello.incarnation < (instance.incarnation or 0):
            reason = "another process has taken this task"
            self._effects.add(Send(connection, Leave(reason)), End(connection, f"{instance}: {reason}"))
            return
        if instance.connection is not None:
            if instance.pid != hello.pid:
                self._effects.add(Send(instance.connection, Leave("another process has taken this task")))
            self._effects.add(End(instance.connection, f"{instance}: replaced by a newer connection"))
            self.lost(instance)
        over = self._over(hello.generation)
        if over:
            self._effects.add(End(connection, f"{instance}: {over}"))
            return
        if instance.incarnation != hello.incarnation:
            instance.link.settlements.drop_verdicts()
        self._connections.connect(instance, connection, hello.incarnation, hello.generation)
        instance.pid = hello.pid
        instance.upload.restart(self._flow.may_renew(instance))
        self._tracking.begin(hello.task, hello.incarnation)
        self._effects.add(Send(connection, self._hello))
        self._tell_credit(instance)
        self._give_plan(instance, standing)

    def data(self, instance: LocalInstance) -> None:
        """The data stream is there."""
        over = self._over(instance.generation)
        if instance.connection is not None and over:
            self._effects.add(End(instance.connection, f"{instance}: {over}"))
            self.lost(instance)
            return
        instance.data_open = True
        self._review(instance)

    def lost(self, instance: LocalInstance) -> None:
        """The connection has ended."""
        if instance.connection is not None:
            self._generation.ended(instance)
        self._connections.disconnect(instance)
        instance.sent_causes = None
        self._generation.report(instance, None)
        instance.in_call_ms = 0
        self._flow.close(instance)

    def control(self, instance: LocalInstance, message: InstanceControl | PeerControl) -> None:
        """Whatever an instance says after its hello: that it takes frames, is at one for long, or how it stands in its
        generation. Raises ProtocolViolation."""
        if isinstance(message, InCall):
            instance.in_call_ms = message.milliseconds
            return
        if isinstance(message, TaskReport):
            self._generation.report(instance, message)
            return
        if not isinstance(message, Credit):
            raise ProtocolViolation(f"{type(message).__name__} is not for stream managers")
        self._flow.credit(instance, [TaskCredit(instance.task, message.limit_bytes, 0, message.taken_bytes)])
        self._weights.tell(instance.task, message.tuple_weight)

    def packet(self, instance: LocalInstance, packet: Packet) -> None:
        """Take a packet. Raises ProtocolViolation; what came before the fault in the packet is done."""
        task, flow = instance.task, self._flow
        instance.accept(packet)
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
        forward = flow.forward if instance.generation == self._generation.number else flow.drop
        upload, fed, traffic = instance.upload, instance.fed, instance.traffic_in
        for frame in packet.frames:
            if frame.source_task != task:
                raise ProtocolViolation(f"a frame of task {frame.source_task}")
            weight = frame.weight()
            if not upload.receive(weight):
                raise ProtocolViolation(f"frames without credit: {upload.received} of {upload.limit} bytes")
            upload.use(weight)
            traffic.bytes += frame.size_bytes()
            fed.add(frame.destination_task)
            forward(frame, weight, None)
        flow.used(upload)

    def renew(self, grant: Grant) -> None:
        """Give upload credit if half of it is used up and nothing the instance feeds is over its bound."""
        instance = self._connections.instance(grant.task)
        if instance.connection is not None and self._flow.may_renew(instance) and grant.renewal() is not None:
            self._tell_credit(instance)

    def tell_taken(self) -> None:
        """What has been taken since it was told last."""
        for instance in self._connections.instances.values():
            if instance.upload.taken != instance.upload.told:
                self._tell_credit(instance)

    def give_plans(self, before: Routes, standing: Standing) -> None:
        """There is a new plan. Instances of tasks that lived here and do so no more are told to leave."""
        for task in sorted(set(before.local_tasks).difference(standing.routes.local_tasks)):
            gone = self._connections.instance(task)
            if gone.connection is not None:
                reason = f"the plan has no {gone} in this container any more"
                self._effects.add(Send(gone.connection, Leave(reason)), End(gone.connection, reason))
                self.lost(gone)
            gone.link.settlements.drop_verdicts()  # nobody of that life is there to hear them
        for instance in self._connections.instances.values():
            if instance.task not in standing.routes.local_spouts:
                instance.sent_causes = None
            self._review(instance)
            self._give_plan(instance, standing)

    def tell_wish(self) -> None:
        """The master wants something else."""
        for instance in self._connections.instances.values():
            if instance.connection is not None:
                self._effects.add(Send(instance.connection, self._generation.wish))

    def tell_weights(self, tasks: Collection[int], standing: Standing) -> None:
        """The weight of these tasks has changed: tell those who may send to them."""
        for task in standing.routes.local_tasks:
            instance = self._connections.instance(task)
            read = [reader for reader in standing.routes.readers(task) if reader in tasks]
            if instance.connection is not None and read:
                self._effects.add(Send(instance.connection, self._task_weights(read)))

    def pause_spouts(self, standing: Standing) -> None:
        """Tell the spouts whose causes have changed."""
        if self._revision == self._pressure.revision:
            return
        self._revision = self._pressure.revision
        for spout in self._spouts(standing.routes):
            causes = self._causes_of(spout, standing)
            if causes != spout.sent_causes and spout.connection is not None:
                spout.sent_causes = causes
                self._effects.add(Send(spout.connection, Pause(bool(causes), causes)))
        self._look(standing.routes)

    def spouts_paused(self) -> bool:
        """True if any local spout is told to pause."""
        return any(instance.sent_causes for instance in self._connections.instances.values())

    def pass_time(self, elapsed_ms: int, routes: Routes) -> None:
        """Charge the time if a spout is told to pause."""
        paused = self.spouts_paused()
        self.paused_ms += elapsed_ms if paused else 0
        self.clock_ms += elapsed_ms
        if paused or not self.episodes.idle:
            self._look(routes)

    def _look(self, routes: Routes) -> None:
        """Which components are paused, for the history."""
        instances = self._connections.instances.values()
        paused = {
            routes.component[i.task]: i.sent_causes for i in instances if i.sent_causes and i.task in routes.component
        }
        self.episodes.look(self.clock_ms, paused)

    def infos(self, routes: Routes) -> tuple[InstanceInfo, ...]:
        """Who is connected, for the master."""
        return tuple(
            InstanceInfo(i.task, routes.component.get(i.task, ""), i.pid, i.incarnation or 0)
            for _, i in sorted(self._connections.instances.items())
            if i.connection is not None
        )

    def check(self, standing: Standing) -> None:
        """Assert every invariant."""
        for instance in self._connections.instances.values():
            told = instance.sent_causes is not None
            here = instance.connection is not None and instance.task in standing.routes.local_spouts
            assert told == here, "every spout that is connected is told whether to pause, and nobody else"
        for spout in self._spouts(standing.routes):
            assert spout.sent_causes == self._causes_of(spout, standing), "paused if and only if there are causes"

    def _give_plan(self, instance: LocalInstance, standing: Standing) -> None:
        if instance.connection is not None and instance.task in standing.routes.local_tasks:
            self._revision = -1
            readers = standing.routes.readers(instance.task)
            if readers:  # first, so that nothing is emitted before
                self._effects.add(Send(instance.connection, self._task_weights(readers)))
            self._effects.add(Send(instance.connection, PlanUpdate(standing.routes.plan, standing.epoch)))
            if self._generation.wish.generation:  # after the plan, which may be of the generation that it speaks of
                self._effects.add(Send(instance.connection, self._generation.wish))

    def _over(self, generation: int) -> str:
        """Why a connection of this generation is not opened. One of another generation only listens."""
        return self._generation.over() if generation == self._generation.named else ""

    def _review(self, instance: LocalInstance) -> None:
        """Frames go to an instance while its connection is of the generation that is carried."""
        carried = instance.generation == self._generation.number
        if instance.link.is_open and not carried:
            self._flow.close(instance)
        elif instance.data_open and carried and not instance.link.is_open:
            self._flow.open(instance)

    def _tell_credit(self, instance: LocalInstance) -> None:
        upload = instance.upload
        upload.told = upload.taken
        if instance.connection is not None:
            self._effects.add(Send(instance.connection, Credit(upload.limit, 0, upload.taken)))

    def _task_weights(self, tasks: Iterable[int]) -> TaskWeights:
        return TaskWeights(tuple(TaskWeight(task, self._weights.of(task)) for task in tasks))

    def _spouts(self, routes: Routes) -> list[LocalInstance]:
        """Those that are connected, and so have the plan."""
        spouts = [self._connections.instance(task) for task in routes.local_spouts]
        return [spout for spout in spouts if spout.connection is not None]

    def _causes_of(self, spout: LocalInstance, standing: Standing) -> tuple[Cause, ...]:
        return self._pressure.causes_for(standing.routes.component[spout.task], standing)
