"""Every law can fail: break one behaviour of a core at a time, and some schedule must notice.

``noticing.py`` says how.
"""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import msgspec
import numpy as np
import pytest

from heron_instance.core.allowance import Allowance
from heron_instance.core.bolt_collector import BoltCollector
from heron_instance.core.groupings import Part, by_slot
from heron_instance.core.key_groupings import Fields, PartialKey
from heron_instance.core.outgoing import Outgoing
from heron_instance.core.pending import PendingTable
from heron_instance.core.spout_collector import SpoutCollector
from heron_instance.core.spout_executor import SpoutExecutor
from heron_runtime.model.plan import PlanVersion
from heron_runtime.state.store import CheckOwner
from heron_runtime.wire import data_codec
from heron_runtime.wire.control import CauseSet
from heron_runtime.wire.errors import MalformedMessage
from stream_manager.core import stream_manager as manager_module
from stream_manager.core.ack_tracker import NO_ROOTS, AckTracker
from stream_manager.core.backpressure import Pressure
from stream_manager.core.connections import Connections, Neighbour
from stream_manager.core.forwarding import Forwarding
from stream_manager.core.instance_side import InstanceSide
from stream_manager.core.links import Link
from stream_manager.core.peer_side import PeerSide
from stream_manager.core.routing import Standing
from stream_manager.core.settlements import Settlements
from topology_master.core import master as master_module
from topology_master.core.mastership import Mastership
from topology_master.shell.store import MasterStore

from .cluster import Cluster
from .noticing import Mutations
from .schedule import make, run
from .world import Violation

MUTATIONS = Mutations(run, floor=400, seconds=30.0)
mutation = MUTATIONS.breaks


# The tracker takes a new root for one of the life before: it never settles, or is told that one's verdict.
@mutation("times out although its tree was complete|nobody failed it", first=669)
def lives_that_look_alike_number_alike(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("heron_instance.core.spout_collector.first_sequence", lambda incarnation: 0)


@mutation("times out although its tree was complete|quiet seconds|never settled")
def the_tracker_forgets_to_xor(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(AckTracker, "ack", lambda self, roots, xors: NO_ROOTS)


@mutation("its tree did not finish")
def the_tracker_completes_at_the_first_ack(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(AckTracker, "ack", lambda self, roots, xors: self.fail(np.unique(roots)))


@mutation("its tree did not finish|times out although its tree was complete")
def one_key_for_all_edges_of_a_copy(patch: pytest.MonkeyPatch) -> None:
    def draw_copy(self: Any, mark: int) -> dict[int, int]:
        if mark == -1:
            return {}
        anchors = ((self.batch, mark),) if mark >= 0 else self._anchor_sets[-2 - mark]
        key, hung = int(self._draw()), {}
        for batch, index in anchors:
            batch.draw_edge(index, key)
            for root in batch.roots_of(index):
                hung[root] = key
        return hung

    patch.setattr(BoltCollector, "_draw_copy", draw_copy)


@mutation(
    "at task|against the protocol|second verdict|expires root|did not finish|settled twice|quiet seconds|times out",
    first=292,
)
def a_spout_keeps_its_incarnation(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Cluster, "next_incarnation", lambda self, before: before)


@mutation("settled twice|quiet seconds|is told that|KeyError|miscounted")
def a_root_stays_open_when_it_is_settled(patch: pytest.MonkeyPatch) -> None:
    real = PendingTable.settle

    def settle(self: PendingTable, roots: Any, now_ms: float) -> Any:
        slots = ((roots & np.uint64(0xFFFFFFFF)) & np.uint64(self._mask)).astype(np.int64)
        was_open, ids = self._open[slots].copy(), [self._ids[slot] for slot in slots.tolist()]
        settled = real(self, roots, now_ms)
        self._open[slots] = was_open
        self.count += int(was_open.sum())
        for slot, one in zip(slots.tolist(), ids, strict=True):
            self._ids[slot] = one
        return settled

    patch.setattr(PendingTable, "settle", settle)


@mutation("roots pending; the maximum")  # the checker knows it from the topology
def a_spout_ignores_its_maximum(patch: pytest.MonkeyPatch) -> None:
    real = SpoutExecutor.__init__

    def init(self: SpoutExecutor, setup: Any) -> None:
        real(self, setup)
        self.window.max_pending = 10**9

    patch.setattr(SpoutExecutor, "__init__", init)


@mutation("while it is paused")
def a_spout_ignores_pauses(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(SpoutExecutor, "on_pause", lambda self, now_ms, paused: None)


@mutation("lets tuples go while|roots pending; the maximum")
def what_is_emitted_in_acks_is_not_held(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(SpoutCollector, "hold", lambda self, holding: None)


@mutation("roots pending; the maximum|quiet seconds")
def acks_may_emit_whatever_they_like(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Allowance, "look", lambda self, out, rows: setattr(out, "look_at", 1 << 30))


@mutation("while the topology is paused")
def a_spout_ignores_deactivation(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(SpoutExecutor, "is_active", lambda self: True)


@mutation("has been not paused|knows the causes of")
def causes_of_peers_are_not_heard(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Pressure, "peer_set", lambda self, container, message: None)
    patch.setattr(Pressure, "peer_change", lambda self, container, message: None)


@mutation("quiet seconds|has been paused")
def causes_of_peers_stay(patch: pytest.MonkeyPatch) -> None:
    def peer_set(self: Pressure, container: int, message: CauseSet) -> None:
        _, known = self._peers.get(container, (0, {}))
        self._peers[container] = (message.number, {**known, **dict.fromkeys(message.causes)})
        self.revision += 1

    patch.setattr(Pressure, "peer_gone", lambda self, container: None)
    patch.setattr(Pressure, "peer_set", peer_set)


@mutation("told whether to pause|paused if and only if|has been not paused")
def nobody_is_paused(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(InstanceSide, "pause_spouts", lambda self, standing: None)


@mutation("every connection is one neighbour's")
def a_connection_outlives_its_end(patch: pytest.MonkeyPatch) -> None:
    def disconnect(self: Connections, neighbour: Neighbour) -> None:
        neighbour.connection = None

    patch.setattr(Connections, "disconnect", disconnect)


@mutation("quiet seconds|never settled|later than")
def nobody_is_woken(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Connections, "take_dirty", lambda self: self.dirty.clear() or [])


@mutation("no plan of a master that was never heard of")
def an_epoch_is_not_kept(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(manager_module, "Standing", lambda epoch, routes, scope="": Standing(0, routes, scope))


@mutation("it is the one", first=110)
def a_peer_stays_accepted_whatever_the_plan_names(patch: pytest.MonkeyPatch) -> None:
    real = PeerSide.review

    def review(self: PeerSide, before: Any, routes: Any) -> None:
        with pytest.MonkeyPatch.context() as inside:
            inside.setattr(self, "_suspend", lambda peer: None)
            real(self, before, routes)

    patch.setattr(PeerSide, "review", review)


@mutation("out of order|reached two tasks")
def a_link_is_a_stack(patch: pytest.MonkeyPatch) -> None:
    real = Link.push

    def push(self: Link, frame: Any, size: int, grant: Any) -> Any:
        queue = real(self, frame, size, grant)
        queue.frames.appendleft(queue.frames.pop())
        return queue

    patch.setattr(Link, "push", push)


@mutation("tuples came in|a slow queue is a cause")
def a_link_that_closes_drops_its_queue(patch: pytest.MonkeyPatch) -> None:
    real = Link.close

    def close(self: Link, lost: dict[int, int] | None = None) -> None:
        real(self, lost)
        for task in list(self.destinations):
            list(self.withdraw(task))

    patch.setattr(Link, "close", close)


@mutation("and counted are")
def losses_are_not_counted(patch: pytest.MonkeyPatch) -> None:
    real = Link.close

    def close(self: Link, lost: dict[int, int] | None = None) -> None:
        real(self, lost)
        self.lost.clear()

    patch.setattr(Link, "close", close)


@mutation("is bounded|against the protocol|later than", first=18)
def upload_credit_is_never_withheld(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Forwarding, "may_renew", lambda self, instance: True)


@mutation("against the protocol|bytes of input")
def the_gateway_ignores_credit(patch: pytest.MonkeyPatch) -> None:
    real = Outgoing.take

    def take(self: Outgoing) -> Any:
        self._limit = 1 << 60
        return real(self)

    patch.setattr(Outgoing, "take", take)


@mutation("reached tasks")
def keys_wander(patch: pytest.MonkeyPatch) -> None:
    def split(self: Fields, rows: list[Any]) -> list[Part]:
        turn = getattr(self, "turn", 0)
        self.turn = turn + 1  # type: ignore[attr-defined]  # the mutation's own
        return [Part((self.tasks[turn % len(self.tasks)],), rows, slice(None))]

    patch.setattr(Fields, "split", split)


@mutation("of a partial_key grouping reached tasks")
def a_key_has_more_than_two_choices(patch: pytest.MonkeyPatch) -> None:
    def split(self: PartialKey, rows: list[Any]) -> list[Part]:
        slots = np.array([next(turns) % len(self.tasks) for _ in rows], np.uint16)
        return by_slot(slots, rows, self.tasks)

    turns = itertools.count()
    patch.setattr(PartialKey, "split", split)


@mutation("before")
def roots_expire_at_every_rotation(patch: pytest.MonkeyPatch) -> None:
    real = AckTracker.tick

    def tick(self: AckTracker, now_ms: int) -> Any:
        self._buckets.rotate(1)
        return real(self, now_ms)

    patch.setattr(AckTracker, "tick", tick)


@mutation("quiet seconds|later than|never settled")
def roots_never_expire(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(AckTracker, "tick", lambda self, now_ms: NO_ROOTS)
    patch.setattr(PendingTable, "expire", lambda self, now_ms: self.settle(np.empty(0, np.uint64), now_ms))


@mutation("nobody failed it|quiet seconds|times out although|never settled")
def acks_are_taken_for_fails(patch: pytest.MonkeyPatch) -> None:
    from heron_runtime.model.reasons import FailKind
    from heron_runtime.wire.data import Reason

    real = Settlements.verdict

    def verdict(self: Settlements, task: int, roots: bytes, reason: Reason | None) -> None:
        real(self, task, roots, reason or Reason(FailKind.FAILED))

    patch.setattr(Settlements, "verdict", verdict)


@mutation("what arrives is not what was sent")  # nothing else knows: their roots time out
def fails_are_lost_on_their_way_to_bytes(patch: pytest.MonkeyPatch) -> None:
    real = data_codec.encode_packet
    patch.setattr(data_codec, "encode_packet", lambda packet: real(msgspec.structs.replace(packet, fails=[])))


@mutation("a decoder raises DecodeError")
def garbled_bytes_are_an_error_that_no_link_expects(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(data_codec, "DecodeError", MalformedMessage)


@mutation("second verdict")
def a_verdict_is_given_twice(patch: pytest.MonkeyPatch) -> None:
    real = AckTracker.ack

    def ack(self: AckTracker, roots: Any, xors: Any) -> Any:
        done = real(self, roots, xors)
        return np.concatenate([done, done])

    patch.setattr(AckTracker, "ack", ack)


@mutation("was stored over|there are two different plans")
def plans_are_not_numbered(patch: pytest.MonkeyPatch) -> None:
    real = master_module.build_physical_plan

    def build(*facts: Any) -> Any:
        plan, previous = real(*facts), facts[3]
        renumber = plan is not None and previous is not None and plan is not previous
        return replace(plan, version=PlanVersion(plan.version.epoch, previous.version.number)) if renumber else plan

    patch.setattr(master_module, "build_physical_plan", build)


@mutation("the master node says|masters lead")
def a_deposed_master_writes(patch: pytest.MonkeyPatch) -> None:
    real = MasterStore._operations

    def operations(self: MasterStore, request: Any) -> Any:
        found = real(self, request)
        return [o for o in found if not isinstance(o, CheckOwner)] or found

    patch.setattr(MasterStore, "_operations", operations)
    patch.setattr(Mastership, "_step_down", lambda self, reason, resign=True: [])
    patch.setattr(Mastership, "check", lambda self: None)


@mutation("epoch|quiet seconds")
def an_epoch_is_not_raised(patch: pytest.MonkeyPatch) -> None:
    real = Mastership._campaign

    def campaign(self: Mastership, stored: Any) -> Any:
        self._highest_seen = max(0, self._highest_seen - 1)
        return real(self, stored)

    patch.setattr(Mastership, "_campaign", campaign)


test_a_broken_core_is_noticed = MUTATIONS.test()


def test_going_back_to_an_older_plan_is_noticed() -> None:
    """No schedule brings an older plan to a stream manager, so the checker is asked itself."""
    cluster, _ = make(8)
    cluster.start()
    cluster.world.run_until(2000)
    manager = cluster.stream_managers[1]
    plan = manager.core.standing.routes.plan
    with pytest.raises(Violation, match="goes back from plan"):
        cluster.checkers.plan_seen(manager.name, manager.life, replace(plan, version=PlanVersion(0, 1)))
