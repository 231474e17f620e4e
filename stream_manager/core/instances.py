"""Protocol with the local instances: hellos, packets, upload credit, plans and pauses."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from heron_runtime.model.checkpoints import TaskReport
from heron_runtime.model.dataflow import Cause
from heron_runtime.wire.control import (
    CallDuration,
    Credit,
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
from stream_manager.core.backpressure import BackpressureEpisodes
from stream_manager.core.connections import LocalInstance, ProtocolViolation
from stream_manager.core.credit import CreditGrant
from stream_manager.core.events import EndConnection, SendMessage
from stream_manager.core.plan import CurrentPlan, PlanRoutes
from stream_manager.core.state import StreamManagerState


class InstanceProtocol:
    """Handles the messages of the local instances and sends them credit, plans and pauses.

    Args:
        state: Shared state of the stream manager.
        hello: First message to each instance.
    """

    def __init__(self, state: StreamManagerState, hello: StreamManagerHello) -> None:
        self.paused_ms = 0  # time during which a local spout was paused
        self.episodes = BackpressureEpisodes()
        self.clock_ms = 0  # clock of the episodes
        self._hello = hello
        self._connections = state.connections
        self._forwarder = state.forwarder
        self._trackers = state.trackers
        self._causes = state.causes
        self._weights = state.weights
        self._generation = state.generation
        self._effects = state.effects
        self._revision = -1  # of the causes when the spouts last received them; -1: send them again

    def connect(self, connection: int, hello: InstanceHello, current: CurrentPlan) -> None:
        """Accept a hello. Replaces an older connection of the task; rejects a hello of an older process."""
        instance = self._connections.instance(hello.task)
        if hello.incarnation < (instance.incarnation or 0):
            reason = "another process has taken this task"
            self._effects.add(
                SendMessage(connection, Leave(reason)), EndConnection(connection, f"{instance}: {reason}")
            )
            return
        if instance.connection is not None:
            if instance.pid != hello.pid:
                self._effects.add(SendMessage(instance.connection, Leave("another process has taken this task")))
            self._effects.add(EndConnection(instance.connection, f"{instance}: replaced by a newer connection"))
            self.disconnected(instance)
        over = self._closed_reason(hello.generation)
        if over:
            self._effects.add(EndConnection(connection, f"{instance}: {over}"))
            return
        if instance.incarnation != hello.incarnation:
            instance.link.settlements.drop_verdicts()
        self._connections.connect(instance, connection, hello.incarnation, hello.generation)
        instance.pid = hello.pid
        instance.upload.restart(self._forwarder.may_renew(instance))
        self._trackers.begin(hello.task, hello.incarnation)
        self._effects.add(SendMessage(connection, self._hello))
        self._send_credit(instance)
        self._send_plan(instance, current)

    def open_data(self, instance: LocalInstance) -> None:
        """Open the link if the connection belongs to the current generation."""
        over = self._closed_reason(instance.generation)
        if instance.connection is not None and over:
            self._effects.add(EndConnection(instance.connection, f"{instance}: {over}"))
            self.disconnected(instance)
            return
        instance.data_open = True
        self._open_or_close(instance)

    def disconnected(self, instance: LocalInstance) -> None:
        """Remove a connection that has ended."""
        if instance.connection is not None:
            self._generation.record_ended(instance)
        self._connections.disconnect(instance)
        instance.sent_causes = None
        self._generation.set_report(instance, None)
        instance.in_call_ms = 0
        self._forwarder.close(instance)

    def control(self, instance: LocalInstance, message: InstanceControl | PeerControl) -> None:
        """Handle a control message: credit, the duration of a long call, or the report of a stateful task.

        Raises:
            ProtocolViolation: The message is not for a stream manager.
        """
        if isinstance(message, CallDuration):
            instance.in_call_ms = message.milliseconds
            return
        if isinstance(message, TaskReport):
            self._generation.set_report(instance, message)
            return
        if not isinstance(message, Credit):
            raise ProtocolViolation(f"{type(message).__name__} is not for stream managers")
        self._forwarder.credit(instance, [TaskCredit(instance.task, message.limit_bytes, 0, message.taken_bytes)])
        self._weights.update(instance.task, message.tuple_weight)

    def packet(self, instance: LocalInstance, packet: Packet) -> None:
        """Handle a packet.

        Raises:
            ProtocolViolation: The packet breaks a rule. The parts before the violation have been handled.
        """
        task, flow = instance.task, self._forwarder
        instance.accept(packet)
        if packet.verdicts:
            raise ProtocolViolation("verdicts are sent by trackers only")
        for init in packet.inits:
            self._trackers.init(task, init)
        for ack in packet.acks:
            flow.ack(ack)
        for fail in packet.fails:
            flow.fail(fail)
        if not packet.frames:
            return
        forward = flow.forward if instance.generation == self._generation.carried_generation else flow.drop
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
        flow.mark_used(upload)

    def renew(self, grant: CreditGrant) -> None:
        """Renew upload credit if half of it is used and no destination of the instance is over its bound."""
        instance = self._connections.instance(grant.task)
        if instance.connection is not None and self._forwarder.may_renew(instance) and grant.renewal() is not None:
            self._send_credit(instance)

    def report_taken(self) -> None:
        """Send to each instance how much of its frames was taken, where that has changed."""
        for instance in self._connections.instances.values():
            if instance.upload.taken != instance.upload.reported:
                self._send_credit(instance)

    def apply_plan(self, before: PlanRoutes, current: CurrentPlan) -> None:
        """Send a new plan to the instances. Tasks that have left this container are asked to leave."""
        for task in sorted(set(before.local_tasks).difference(current.routes.local_tasks)):
            gone = self._connections.instance(task)
            if gone.connection is not None:
                reason = f"{gone} has left this container"
                self._effects.add(SendMessage(gone.connection, Leave(reason)), EndConnection(gone.connection, reason))
                self.disconnected(gone)
            gone.link.settlements.drop_verdicts()  # the process that opened the roots is gone
        for instance in self._connections.instances.values():
            if instance.task not in current.routes.local_spouts:
                instance.sent_causes = None
            self._open_or_close(instance)
            self._send_plan(instance, current)

    def send_command(self) -> None:
        """Send the current checkpoint command to all instances."""
        for instance in self._connections.instances.values():
            if instance.connection is not None:
                self._effects.add(SendMessage(instance.connection, self._generation.command))

    def send_weights(self, tasks: Collection[int], current: CurrentPlan) -> None:
        """Send the changed weights of tasks to the instances that may send tuples to them."""
        for task in current.routes.local_tasks:
            instance = self._connections.instance(task)
            read = [reader for reader in current.routes.readers(task) if reader in tasks]
            if instance.connection is not None and read:
                self._effects.add(SendMessage(instance.connection, self._task_weights(read)))

    def pause_spouts(self, current: CurrentPlan) -> None:
        """Pause or resume the spouts whose causes have changed."""
        if self._revision == self._causes.revision:
            return
        self._revision = self._causes.revision
        for spout in self._spouts(current.routes):
            causes = self._causes_of(spout, current)
            if causes != spout.sent_causes and spout.connection is not None:
                spout.sent_causes = causes
                self._effects.add(SendMessage(spout.connection, Pause(bool(causes), causes)))
        self._observe_episodes(current.routes)

    def has_paused_spouts(self) -> bool:
        """Return True if a local spout is paused."""
        return any(instance.sent_causes for instance in self._connections.instances.values())

    def pass_time(self, elapsed_ms: int, routes: PlanRoutes) -> None:
        """Advance the clocks of pauses and episodes."""
        paused = self.has_paused_spouts()
        self.paused_ms += elapsed_ms if paused else 0
        self.clock_ms += elapsed_ms
        if paused or not self.episodes.idle:
            self._observe_episodes(routes)

    def _observe_episodes(self, routes: PlanRoutes) -> None:
        """Record which components are paused, for the history."""
        instances = self._connections.instances.values()
        paused = {
            routes.component[i.task]: i.sent_causes for i in instances if i.sent_causes and i.task in routes.component
        }
        self.episodes.observe(self.clock_ms, paused)

    def connected_instances(self, routes: PlanRoutes) -> tuple[InstanceInfo, ...]:
        """Return the connected instances, as the topology master receives them."""
        return tuple(
            InstanceInfo(i.task, routes.component.get(i.task, ""), i.pid, i.incarnation or 0)
            for _, i in sorted(self._connections.instances.items())
            if i.connection is not None
        )

    def check(self, current: CurrentPlan) -> None:
        """Assert every invariant."""
        for instance in self._connections.instances.values():
            has_causes = instance.sent_causes is not None
            here = instance.connection is not None and instance.task in current.routes.local_spouts
            assert has_causes == here, "exactly the connected spouts know whether they are paused"
        for spout in self._spouts(current.routes):
            assert spout.sent_causes == self._causes_of(spout, current), "paused if and only if there are causes"

    def _send_plan(self, instance: LocalInstance, current: CurrentPlan) -> None:
        if instance.connection is not None and instance.task in current.routes.local_tasks:
            self._revision = -1
            readers = current.routes.readers(instance.task)
            if readers:  # first, so that the instance emits nothing before it has them
                self._effects.add(SendMessage(instance.connection, self._task_weights(readers)))
            self._effects.add(SendMessage(instance.connection, PlanUpdate(current.routes.plan, current.epoch)))
            if self._generation.command.generation:  # after the plan of the generation it refers to
                self._effects.add(SendMessage(instance.connection, self._generation.command))

    def _closed_reason(self, generation: int) -> str:
        """Return why a connection of this generation stays closed, or an empty string."""
        return self._generation.closed_reason() if generation == self._generation.plan_generation else ""

    def _open_or_close(self, instance: LocalInstance) -> None:
        """Open the link if its connection belongs to the generation that is carried, else close it."""
        carried = instance.generation == self._generation.carried_generation
        if instance.link.is_open and not carried:
            self._forwarder.close(instance)
        elif instance.data_open and carried and not instance.link.is_open:
            self._forwarder.open(instance)

    def _send_credit(self, instance: LocalInstance) -> None:
        upload = instance.upload
        upload.reported = upload.taken
        if instance.connection is not None:
            self._effects.add(SendMessage(instance.connection, Credit(upload.limit, 0, upload.taken)))

    def _task_weights(self, tasks: Iterable[int]) -> TaskWeights:
        return TaskWeights(tuple(TaskWeight(task, self._weights.of(task)) for task in tasks))

    def _spouts(self, routes: PlanRoutes) -> list[LocalInstance]:
        """Return the connected local spouts."""
        spouts = [self._connections.instance(task) for task in routes.local_spouts]
        return [spout for spout in spouts if spout.connection is not None]

    def _causes_of(self, spout: LocalInstance, current: CurrentPlan) -> tuple[Cause, ...]:
        return self._causes.causes_for(current.routes.component[spout.task], current)
