"""Invariants about processes, checked after events of a process, at each probe, and at the end.

Checks by time:

* after every fourth event and every tick: the core's own ``check``, which compares queues with the memory formula (a
  violation rarely disappears within a few events, and the check took a quarter of a schedule's time);
* after every event: one verdict per root and tracker, expiry within T … T(1 + 1/(n-1)), pending roots at most the
  maximum and one call, no emit while paused or inactive, no current process told to leave;
* at each plan, epoch and store write: plans of one version are equal, versions never go back, one leader per epoch,
  only the owner of the master node writes, and only plans of its own epoch;
* at each probe: nothing disappears inside a process (everything received was sent on or is queued), a spout is paused
  exactly if its scope has had a cause for a while;
* at the end: everything emitted has been processed or was in a process or connection that failed, and every broken link
  has counted its losses.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from heron_runtime.model.dataflow import FailKind, FailReason
from heron_runtime.model.plan import NO_PLAN, PhysicalPlan, PlanVersion
from heron_runtime.model.topology import TopologyState
from heron_runtime.state import paths
from heron_runtime.wire import message_codecs
from heron_runtime.wire.data import Packet, Reason
from stream_manager.core.stream_manager import REST_MS

from .oracle import Root
from .simulation import SimProcess, Violation

if TYPE_CHECKING:
    from stream_manager.core.links import Link

    from .cluster import Cluster
    from .instances import SimInstance
    from .masters import SimMaster
    from .stream_managers import SimStreamManager
    from .wire import Pipe

BUCKETS = 3
TICK_SLACK_MS = 4 * 110.0  # a rotation waits for its tick, and there are three of them
CALM_MS = 3000.0  # after so long without a fault its effects are over
AGREE_MS = 1500.0  # causes are sent at once, and in full each second: after this time all must have received them
MOST_EMITS_OF_A_CALL = 3
CHECK_EACH = 4  # events of stream managers, steps of executors


class Checkers:
    """Collection of checks that is notified of all events and raises Violation."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.world = cluster.world
        config = cluster.topology.config
        self.timeout_ms = 1000.0 * config.get("topology.message.timeout.secs", 30)
        self.last_fault_ms = float("-inf")  # a break, death, stop or partition
        self.tampered = False
        self.most_pending = 0
        self.max_pending: int = config.get("topology.max.spout.pending", 20_000)
        self._plans: dict[PlanVersion, tuple[PhysicalPlan, bytes]] = {}  # as last seen
        self._seen: dict[tuple[str, int], PlanVersion] = {}
        self._leaders: dict[int, str] = {}
        self._stored = NO_PLAN
        self._opened: dict[tuple[str, int], dict[int, int]] = {}  # per life of a stream manager: time by root
        # Spout: how often it and the causes have changed, and since when it should have changed back.
        self._since: dict[int, tuple[tuple[int, ...], float]] = {}
        # Life of a stream manager: when its causes had which number.
        self._announced: dict[tuple[str, int], list[tuple[float, int]]] = {}
        self._core_steps = self._executor_steps = 0

    def fault(self, until_ms: float = 0.0) -> None:
        """Record a fault that has just been injected; its effects begin to end at ``until_ms``."""
        self.last_fault_ms = max(self.last_fault_ms, self.world.now_ms, until_ms)

    # Stream managers.

    def stream_manager_started(self, manager: SimStreamManager) -> None:
        """Observe the verdicts of a new core."""
        self._opened[manager.name, manager.life] = {}
        tracking = manager.core.trackers
        verdict = tracking.verdict

        def checked_verdict(task: int, roots: bytes, reason: Reason | None) -> None:
            self._verdict(manager, roots, reason)
            verdict(task, roots, reason)

        tracking.verdict = checked_verdict  # type: ignore[method-assign]  # the checker listens in between

    def packet_taken(self, manager: SimStreamManager, task: int, packet: Packet) -> None:
        """Check a packet of an instance before it is handled."""
        opened = self._opened[manager.name, manager.life]
        for init in packet.inits:
            for n in range(len(init.xors) // 8):
                opened[(init.first_root & ~0xFFFFFFFF) | ((init.first_root + n) & 0xFFFFFFFF)] = int(self.world.now_ms)

    def _verdict(self, manager: SimStreamManager, roots: bytes, reason: Reason | None) -> None:
        opened = self._opened[manager.name, manager.life]
        now = int(self.world.now_ms)
        for root in np.frombuffer(roots, "<u8").tolist():
            since = opened.pop(root, None)
            if since is None:
                raise Violation(f"{manager.name} gives a second verdict on root {root:#x}, or one on no root")
            if reason is not None and reason.kind is FailKind.TIMEOUT:
                self._check_expiry(manager, root, now - since)

    def _check_expiry(self, manager: SimStreamManager, root: int, age_ms: int) -> None:
        if age_ms < self.timeout_ms:
            raise Violation(f"{manager.name} expires root {root:#x} after {age_ms} ms, before {self.timeout_ms}")
        latest = self.timeout_ms * (1 + 1 / (BUCKETS - 1)) + TICK_SLACK_MS
        # A stream manager that was stopped delays expiry for a while, to read queued data.
        if age_ms > latest and not manager.stopped_within(self.world.now_ms - age_ms - REST_MS - TICK_SLACK_MS):
            raise Violation(f"{manager.name} expires root {root:#x} after {age_ms} ms, later than {latest}")

    def checked(self, manager: SimStreamManager, always: bool = False) -> None:
        """Check a stream manager after an event, or fully (``always``) after its ticks."""
        if not manager.alive:
            return
        core = manager.core
        self._core_steps += 1
        try:
            if always or self._core_steps % CHECK_EACH == 0:
                core.check_control()
            if self._core_steps % (4 * CHECK_EACH) == 0:  # the trackers' check takes long
                core.trackers.check()
        except AssertionError as error:
            raise Violation(f"{manager.name}: {error}") from error
        if core.violations > manager.tampered:
            raise Violation(f"{manager.name} was spoken to against the protocol {core.violations} times")

    def sequence_fault_at(self, instance: SimInstance) -> None:
        """Record that an instance has noticed a gap or a repeat."""
        if not self.tampered:
            raise Violation(f"{instance.name}: a packet is missing or came twice, and nothing was lost")

    # Instances.

    def before_run(self, instance: SimInstance) -> int | None:
        """Return the number of routed rows of a spout that may not emit, before a step; None for other instances."""
        executor: Any = instance.executor
        may_emit = not instance.paused_by_pressure and executor.output.plan.state is TopologyState.RUNNING
        return None if may_emit or not instance.is_spout else _routed(executor.collector)

    def instance_ran(self, instance: SimInstance, opened: int | None) -> None:
        """Check an instance after a step of its executor."""
        executor: Any = instance.executor
        self._executor_steps += 1
        if self._executor_steps % CHECK_EACH == 0:
            executor.check()
        if instance.is_spout:
            if opened not in (None, _routed(executor.collector)):
                raise Violation(f"{instance.name} lets tuples go while it is paused or inactive")
            pending = executor.pending.count
            self.most_pending = max(self.most_pending, pending)
            if pending > self.max_pending + MOST_EMITS_OF_A_CALL - 1:
                raise Violation(f"{instance.name} has {pending} roots pending; the maximum is {self.max_pending}")
            self.cluster.oracle.note_plan(instance.task, executor.output.plan)
        else:
            room = max(executor.data_in.maximum, instance.heaviest_told)
            bound = room + instance.largest_frame  # the credit, exceeded by one frame
            if executor.data_in.size > bound:
                raise Violation(f"{instance.name} holds {executor.data_in.size} bytes of input, over {bound}")
            self.cluster.oracle.note_plan(instance.task, executor.output.plan)

    def next_tuple_called(self, instance: SimInstance) -> None:
        """Check that user code may emit now."""
        executor: Any = instance.executor
        if instance.paused_by_pressure:
            raise Violation(f"{instance.name} is asked for tuples while it is paused")
        if executor.output.plan.state is not TopologyState.RUNNING:
            raise Violation(f"{instance.name} is asked for tuples while the topology is {executor.output.plan.state}")

    def instance_died(self, instance: SimInstance) -> None:
        """Settle the books of a dead instance: effects of its user code stand, tuples it held are gone."""
        if instance.is_spout:
            abandoned = self.cluster.oracle.spout_died(instance.task, instance.life)
            self.cluster.sources[instance.task].spout_died(abandoned)

    def root_failed(self, instance: SimInstance, root: Root, reason: FailReason) -> None:
        """Check that the fail reported to the spout has a true reason.

        A spout whose emits are held learns of the fail after its root was settled, so ages count until then.
        """
        age = reason.elapsed_ms
        manager = self.cluster.stream_managers[instance.host]
        if reason.kind is FailKind.STREAM_MANAGER_LOST and manager.life < 2:
            raise Violation(f"root {root.uid} fails as lost with a stream manager that never died", root.story)
        if reason.kind is not FailKind.TIMEOUT:
            return
        if age < self.timeout_ms - 1:
            raise Violation(f"root {root.uid} times out after {age:.0f} ms, before {self.timeout_ms}", root.story)
        bucket = self.timeout_ms / (BUCKETS - 1)
        latest = self.timeout_ms + 2 * bucket + 1000 + TICK_SLACK_MS
        if age > latest and self.last_fault_ms < root.emitted_ms - CALM_MS:
            raise Violation(f"root {root.uid} times out after {age:.0f} ms, later than {latest}", root.story)
        quiet = self.last_fault_ms < root.emitted_ms - CALM_MS
        if quiet and root.done_ms is not None and root.done_ms < root.emitted_ms + self.timeout_ms - 500:
            raise Violation(f"root {root.uid} times out although its tree was complete", root.story)

    # Masters, plans, the store.

    def master_checked(self, master: SimMaster) -> None:
        """Check a master after an event."""
        role = master.core.mastership
        if master.alive and role.acting and self._leaders.get(role.epoch) not in (None, f"{master.name}.{master.life}"):
            raise Violation(f"{master.name} acts with epoch {role.epoch}, which is {self._leaders[role.epoch]}'s")

    def leads(self, master: SimMaster, epoch: int) -> None:
        """Check that a master that begins to lead is the only one of its epoch."""
        who = f"{master.name}.{master.life}"
        if self._leaders.setdefault(epoch, who) != who:
            raise Violation(f"epoch {epoch} is led by {self._leaders[epoch]} and by {who}")

    def store_written(self, master: SimMaster, request: Any) -> None:
        """Check that a master owned the master node when its transaction was applied."""
        nodes, name = self.cluster.tree.nodes, self.cluster.topology.name
        there = nodes.get(paths.master(name))
        record = nodes.get(paths.physical_plan(name))
        if getattr(request, "plan", None) is None or record is None:
            return
        plan = message_codecs.PHYSICAL_PLAN.decode(record.data)
        location = None if there is None else message_codecs.MASTER_LOCATION.decode(there.data)
        if location is None or location.port != master.port or location.epoch != plan.version.epoch:
            raise Violation(f"{master.name} has written plan {plan.version}; the master node says {location}")
        if plan.version <= self._stored:
            raise Violation(f"plan {plan.version} was stored over {self._stored}")
        self._stored = plan.version
        self.same_plan(plan)
        self.cluster.plan_stored(plan)

    def plan_sent(self, master: SimMaster, plan: PhysicalPlan, epoch: int) -> None:
        """Check that the plan that a master sends is stored and belongs to the master's epoch."""
        if self._leaders.get(epoch) != f"{master.name}.{master.life}":
            raise Violation(f"{master.name} sends plan {plan.version} under epoch {epoch}, which is not its own")
        if plan.version > self._stored:
            raise Violation(f"{master.name} sends plan {plan.version} before it is stored")
        self.same_plan(plan)

    def plan_seen(self, who: str, life: int, plan: PhysicalPlan) -> None:
        """Check the plan that a process follows."""
        self.same_plan(plan)
        before = self._seen.get((who, life), NO_PLAN)
        if plan.version < before:
            raise Violation(f"{who} goes back from plan {before} to {plan.version}")
        self._seen[who, life] = plan.version

    def same_plan(self, plan: PhysicalPlan) -> None:
        """Check that all plans of one version are equal."""
        known, data = self._plans.get(plan.version, (None, b""))
        if known is plan:
            return
        encoded = message_codecs.PHYSICAL_PLAN.encode(plan)
        self._plans[plan.version] = plan, encoded
        if known is not None and encoded != data:
            raise Violation(f"there are two different plans {plan.version}")

    def told_to_leave(self, process: SimProcess, reason: str) -> None:
        """Check that only a replaced process is told to leave; only an update replaces processes."""
        if not self.cluster.replaced(process):
            raise Violation(f"{process.name} is told to leave though it is current: {reason}")

    # Probes.

    def probe(self) -> None:
        """Check everything that holds between events, every quarter of a second."""
        for manager in self.cluster.stream_managers.values():
            if manager.alive:
                self._conserved(manager)
        for instance in self.cluster.instances.values():
            if instance.is_spout and instance.alive and instance.executor is not None:
                self._agree(instance)
        self._peers_hear([m for m in self.cluster.stream_managers.values() if m.alive])

    def _peers_hear(self, managers: list[SimStreamManager]) -> None:
        """Check that peers know the causes that a stream manager announced some time ago."""
        now_ms = self.world.now_ms
        linked = len(managers) == len(self.cluster.stream_managers) and all(m.core.is_linked() for m in managers)
        if not linked or now_ms - self.last_fault_ms < CALM_MS:
            self._announced.clear()
            return
        for manager in managers:
            announced = self._announced.setdefault((manager.name, manager.life), [])
            announced.append((now_ms, manager.core.causes.announced().number))
            due = max((number for at, number in announced if at <= now_ms - AGREE_MS), default=-1)
            for peer in managers:
                known, _ = peer.core.causes._peers.get(manager.container, (-1, {}))
                if peer is not manager and known < due:
                    raise Violation(
                        f"{peer.name} knows the causes of {manager.name} up to number {known}, "
                        f"and {due} is older than {AGREE_MS:.0f} ms"
                    )

    def _conserved(self, manager: SimStreamManager) -> None:
        """Check that everything that entered a stream manager has left it or is queued."""
        neighbours = manager.core.connections.all()
        came = sum(n.traffic_in.tuples for n in neighbours)
        left = sum(n.link.traffic_out.tuples for n in neighbours)
        waits = sum(frame.count for n in neighbours for q in n.link.destinations.values() for frame, _, _ in q.frames)
        if came != left + waits and not manager.core.forwarder.moved_frames:  # moved frames end here
            raise Violation(f"{manager.name}: {came} tuples came in, {left} went out, {waits} wait")

    def _agree(self, instance: SimInstance) -> None:
        """Check that a spout is paused exactly if its scope has had a cause for a while."""
        managers = [m for m in self.cluster.stream_managers.values() if m.alive]
        host = self.cluster.stream_managers[instance.host]
        # Stream managers without a link do not know each other's causes; they are sent again with the next link.
        if len(managers) < len(self.cluster.stream_managers) or not all(m.core.is_linked() for m in managers):
            self._since.pop(instance.task, None)
            return
        standing = host.core.current
        causes = [
            c for m in managers for c in m.core.causes.own
            if standing.scope == "topology" or standing.routes.reaches(instance.component_name, c)
        ]  # fmt: skip
        if bool(causes) == instance.paused_by_pressure or host.core.causes.partitioned:
            self._since.pop(instance.task, None)
            return
        # A spout that has changed between two probes has followed; causes that come and go leave it unchanged.
        changes = (instance.life, instance.pause_changes, *(m.core.causes.announced().number for m in managers))
        known, since = self._since.setdefault(instance.task, (changes, self.world.now_ms))
        if known != changes:
            self._since[instance.task] = changes, self.world.now_ms
            return
        if self.world.now_ms - since > AGREE_MS and self.world.now_ms - self.last_fault_ms > CALM_MS:
            said = ", ".join(map(str, causes)) or "no cause"
            state = "paused" if instance.paused_by_pressure else "not paused"
            raise Violation(f"{instance.name} has been {state} for {AGREE_MS:.0f} ms with {said}")

    # The end.

    def at_rest(self) -> None:
        """Run the expensive checks once everything has come to rest."""
        for manager in self.cluster.stream_managers.values():
            try:
                manager.core.check()
            except AssertionError as error:
                raise Violation(f"{manager.name}: {error}") from error
            self._conserved(manager)
            self._losses_counted(manager)
        for instance in self.cluster.instances.values():
            emitted, sent = instance.emitted_copies, instance.sent_tuples
            if emitted != sent:
                raise Violation(f"{instance.name}: user code emitted {emitted} copies, {sent} were sent")
            came, done = instance.received_tuples, instance.processed
            if came != done:
                raise Violation(f"{instance.name}: {came} tuples came, {done} were processed")
            self._losses_of(instance.name, instance.links, instance.lost)
        if self.cluster.tracked:
            for root in self.cluster.oracle.open_roots():
                raise Violation(f"root {root.uid} was never settled", root.story)

    def _losses_counted(self, manager: SimStreamManager) -> None:
        """Check that each link counted at least the losses of its broken connections, and no more than it was given."""
        by_link: dict[Link, list[tuple[Pipe, int]]] = {}
        for link, pipe, before in manager.pipes:
            by_link.setdefault(link, []).append((pipe, before))
        for link, pipes in by_link.items():
            where = f"container {link.container}" if link.container else f"task {link.task}"
            self._losses_of(f"{manager.name} on the way to {where}", pipes, sum(link.lost.values()))

    def _losses_of(self, who: str, pipes: list[tuple[Pipe, int]], counted_in_all: int) -> None:
        ends = [before for _, before in pipes[1:]]
        for (pipe, before), after in zip(pipes, [*ends, counted_in_all], strict=True):
            lost, counted = pipe.sent - pipe.handed, after - before
            if not self.tampered and not lost <= counted <= pipe.sent:
                raise Violation(f"{who}: {lost} of {pipe.sent} tuples were lost and counted are {counted}")


def _routed(collector: Any) -> int:
    """Return how many rows a spout has had routed: all emitted ones except queued or held ones."""
    return sum(out.emitted_ever for out in collector.streams.values()) - sum(
        len(rows) for _, rows, *_ in collector._held
    )
