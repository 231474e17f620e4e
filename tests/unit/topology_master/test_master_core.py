"""Topology master core: decisions from events, and writes that only the owner of the master node may do."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heron_runtime.launch import Launch
from heron_runtime.model.dataflow import Cause, CauseKind
from heron_runtime.model.plan import PlanVersion
from heron_runtime.model.records import ExecutionState, MasterLocation
from heron_runtime.model.topology import TopologyState
from heron_runtime.state import paths
from heron_runtime.state.memory import MemoryStore, MemoryTree
from heron_runtime.state.store import Create, Delete, Set
from heron_runtime.wire import message_codecs
from heron_runtime.wire.master import Bottleneck, FlowStatus, Heartbeat
from tests.support.harness.masters import (
    ID,
    NAME,
    Node,
    definition,
    execution,
    info,
    packing,
    registration,
    sent_plans,
    submit,
)
from topology_master.core import events as e
from topology_master.core import master as master_module
from topology_master.core.master import NOT_LEADING
from topology_master.core.mastership import MasterRole
from topology_master.shell.store import MasterStore, read_stored


def leader(state: TopologyState = TopologyState.RUNNING, containers: int = 2) -> Node:
    node = Node(MemoryTree(), 1)
    submit(node.store, state, containers)
    node.settle()
    assert node.leading
    return node


def registered(node: Node, *incarnations: int) -> Node:
    for container, incarnation in enumerate(incarnations, 1):
        node.tell(e.RegistrationReceived(100 * incarnation + container, registration(container, incarnation)))
    node.settle()
    return node


def test_plan_is_built_once_all_stream_managers_are_registered() -> None:
    node = leader()
    node.tell(e.RegistrationReceived(1, registration(1)))
    node.settle()
    assert sent_plans(node.effects) == []
    node.tell(e.RegistrationReceived(2, registration(2)))
    node.settle()
    (plan,) = sent_plans(node.effects)
    assert plan.version == PlanVersion(1, 1)
    assert plan.stream_managers == (info(1), info(2))
    assert plan.state is TopologyState.RUNNING
    assert set(plan.key_group_table("count")) == {2, 4}
    stored = node.store.get(paths.physical_plan(NAME))
    assert stored is not None
    assert message_codecs.PHYSICAL_PLAN.decode(stored.data) == plan


def test_plan_is_sent_only_after_it_is_stored() -> None:
    node = leader()
    effects = node.tell(e.RegistrationReceived(1, registration(1)), e.RegistrationReceived(2, registration(2)))
    assert [type(x) for x in effects] == [e.CommitTransaction]
    node.settle()
    assert len(sent_plans(node.effects)) == 1


def test_unchanged_plan_is_not_rebuilt_at_each_heartbeat(monkeypatch: pytest.MonkeyPatch) -> None:
    """A build takes long for many tasks."""
    node, built = registered(leader(), 1, 1), []
    monkeypatch.setattr(master_module, "build_physical_plan", lambda *facts: built.append(facts))
    for _ in range(10):
        node.tell(e.HeartbeatReceived(101, Heartbeat()))
        node.settle()
    assert built == []


def test_new_address_changes_the_version_but_not_the_routing() -> None:
    node = registered(leader(), 1, 1)
    node.tell(e.RegistrationReceived(9, registration(2, incarnation=5)))
    node.settle()
    old, *_, new = sent_plans(node.effects)
    assert (new.version, new.routing_version) == (PlanVersion(1, 2), old.routing_version)
    assert new.stream_manager(2) == info(2, 5)
    assert new.key_groups == old.key_groups


def test_process_on_a_new_link_receives_the_plan_and_changes_nothing() -> None:
    node = registered(leader(), 1, 1)
    effects = node.tell(e.LinkClosed(101), e.RegistrationReceived(7, registration(1)))
    assert [(x.links, x.plan.version) for x in effects if isinstance(x, e.SendPlan)] == [((7,), PlanVersion(1, 1))]
    assert not any(isinstance(x, e.CommitTransaction) for x in effects)


def test_second_link_of_a_process_closes_the_older_link() -> None:
    """A delayed registration may arrive after that of the current link."""
    node = registered(leader(), 1, 1)
    effects = node.tell(e.RegistrationReceived(7, registration(1)))
    assert [x.links for x in effects if isinstance(x, e.CloseLinks)] == [(101,)]
    assert not any(isinstance(x, e.RejectStreamManager) for x in effects)


def test_older_incarnation_is_rejected_and_newer_one_replaces() -> None:
    node = registered(leader(), 5, 5)
    refused = node.tell(e.RegistrationReceived(7, registration(1, incarnation=4)))
    assert [x.link for x in refused if isinstance(x, e.RejectStreamManager)] == [7]
    replaced = node.tell(e.RegistrationReceived(8, registration(1, incarnation=6)))
    assert [x.link for x in replaced if isinstance(x, e.RejectStreamManager)] == [501]
    unknown = node.tell(e.RegistrationReceived(9, registration(17)))
    assert [x.link for x in unknown if isinstance(x, e.RejectStreamManager)] == [9]


def deaths(effects: list[e.Effect]) -> int:
    return sum(isinstance(x, e.LogNote) and x.metric == "__stream_manager_deaths" for x in effects)


def test_stream_manager_death_is_counted_once_and_not_for_a_new_link() -> None:
    node = registered(leader(), 5, 5)
    assert deaths(node.effects) == 0
    node.tell(e.RegistrationReceived(7, registration(1, incarnation=5)))
    node.tell(e.RegistrationReceived(8, registration(1, incarnation=4)))
    assert deaths(node.effects) == 0
    node.tell(
        e.RegistrationReceived(9, registration(1, incarnation=6)),
        e.RegistrationReceived(10, registration(1, incarnation=6)),
    )
    assert deaths(node.effects) == 1
    standby = Node(node.store.tree, 2)
    node.settle()
    node.store.close()
    standby.settle()
    assert deaths(standby.tell(e.RegistrationReceived(1, registration(1, incarnation=6)))) == 0
    assert deaths(standby.tell(e.RegistrationReceived(2, registration(2, incarnation=9)))) == 1


def test_registration_of_another_topology_is_rejected() -> None:
    node = leader()
    effects = node.tell(e.RegistrationReceived(1, replace(registration(1), topology_id="other")))
    assert isinstance(effects[-1], e.RejectStreamManager)


def test_heartbeats_are_answered_and_shown() -> None:
    node = registered(leader(), 1, 1)
    cause = Cause(CauseKind.TASK, "count", 2, 1)
    assert node.tell(e.HeartbeatReceived(101, Heartbeat((cause,), True))) == [e.SendHeartbeatReply(101, 1)]
    first, second = node.core.status().stream_managers
    assert (first.registered, first.causes, first.spouts_paused) == (True, (cause,), True)
    assert (second.causes, second.spouts_paused) == ((), False), "nobody has said so"
    assert node.tell(e.HeartbeatReceived(999, Heartbeat())) == []


def test_heartbeat_replies_name_the_largest_bottleneck() -> None:
    node = registered(leader(), 1, 1)
    slow, slower = Bottleneck("count", 2, 4.0), Bottleneck("sink", 3, 9.0, in_call=True)
    assert node.tell(e.HeartbeatReceived(101, Heartbeat(flow=FlowStatus(holder=slower)))) == [
        e.SendHeartbeatReply(101, 1, slower)
    ]
    assert node.tell(e.HeartbeatReceived(102, Heartbeat(flow=FlowStatus(holder=slow)))) == [
        e.SendHeartbeatReply(102, 1, slower)
    ]
    assert node.tell(e.HeartbeatReceived(101, Heartbeat())) == [e.SendHeartbeatReply(101, 1, slow)]


def test_lapsed_stream_manager_leads_to_exactly_one_new_plan() -> None:
    node = registered(leader(), 1, 1)
    for second in range(60):
        node.tell(e.HeartbeatReceived(101, Heartbeat()), e.MasterTick(), now_ms=1000 * second)
    node.settle()
    assert node.core.membership.missing() == [2]
    assert len(sent_plans(node.effects)) == 1
    node.tell(e.RegistrationReceived(9, registration(2, incarnation=2)))
    node.settle()
    plans = {plan.version for plan in sent_plans(node.effects)}
    assert plans == {PlanVersion(1, 1), PlanVersion(1, 2)}


def test_deactivation_is_stored_before_it_is_answered() -> None:
    node = registered(leader(), 1, 1)
    before = node.tell(e.StateRequested(1, TopologyState.PAUSED))
    assert [type(x) for x in before] == [e.CommitTransaction]
    node.settle()
    (answer,) = [x for x in node.effects if isinstance(x, e.AnswerRequest)]
    assert answer.status is not None
    assert answer.status.state is TopologyState.PAUSED
    assert sent_plans(node.effects)[-1].state is TopologyState.PAUSED
    stored = node.store.get(paths.wanted_state(NAME))
    assert stored is not None
    assert message_codecs.WANTED_STATE.decode(stored.data).state is TopologyState.PAUSED
    submitted = node.store.get(paths.execution_state(NAME))
    assert submitted is not None
    assert submitted.version == 0, "that is the control plane's"
    again = node.tell(e.StateRequested(2, TopologyState.PAUSED))
    assert [type(x) for x in again] == [e.AnswerRequest], "nothing to do is answered at once"


def test_state_changes_without_a_plan_and_with_a_missing_stream_manager() -> None:
    node = leader(TopologyState.PAUSED)
    node.tell(e.StateRequested(1, TopologyState.RUNNING))
    node.settle()
    assert [x.status.state for x in node.effects if isinstance(x, e.AnswerRequest) and x.status] == [
        TopologyState.RUNNING
    ]
    registered(node, 1, 1)
    node.tell(*[e.MasterTick()] * 2, e.StateRequested(2, TopologyState.PAUSED))
    node.settle()
    assert sent_plans(node.effects)[-1].state is TopologyState.PAUSED


def test_topology_deployed_deactivated_starts_paused() -> None:
    node = registered(leader(TopologyState.PAUSED), 1, 1)
    assert [plan.state for plan in sent_plans(node.effects)] == [TopologyState.PAUSED]


def test_state_written_to_the_store_externally_is_followed() -> None:
    node = registered(leader(), 1, 1)
    node.store.commit(
        [Set(paths.execution_state(NAME), message_codecs.EXECUTION_STATE.encode(execution(TopologyState.PAUSED)))]
    )
    node.settle()
    assert sent_plans(node.effects)[-1].state is TopologyState.PAUSED


def test_killed_topology_ends_every_master() -> None:
    node = registered(leader(), 1, 1)
    standby = Node(node.store.tree, 2)
    standby.settle()
    node.store.commit([Delete(paths.execution_state(NAME))])
    for master in (node, standby):
        master.settle()
        assert isinstance(master.effects[-1], e.TopologyKilled)


def test_killed_topology_is_not_recreated_by_an_election() -> None:
    """A candidate whose election overlaps with a kill leaves no node."""
    tree = MemoryTree()
    node = Node(tree, 1)
    submit(node.store)
    node.step()
    node.step()
    assert node.core.mastership.role is MasterRole.CANDIDATE
    node.store.commit([Delete(paths.execution_state(NAME))])
    node.settle()
    assert node.store.get(paths.epoch(NAME)) is None
    assert node.store.get(paths.master(NAME)) is None


def test_standby_takes_over_with_the_last_plan() -> None:
    node = registered(leader(), 1, 1)
    standby = Node(node.store.tree, 2)
    standby.settle()
    assert not standby.leading
    assert not standby.core.status().leading
    node.store.close()
    standby.settle()
    assert standby.leading
    assert standby.led == [2]
    plan = sent_plans(node.effects)[-1]
    for container in (1, 2):
        (sent,) = sent_plans(standby.tell(e.RegistrationReceived(container, registration(container, 1, plan.version))))
        assert sent == plan
    standby.settle()
    assert standby.core.plan == plan
    standby.tell(e.RegistrationReceived(3, registration(2, incarnation=2)))
    standby.settle()
    new = sent_plans(standby.effects)[-1]
    assert (new.version, new.routing_version) == (PlanVersion(2, plan.version.number + 1), plan.routing_version)


def test_new_master_rejects_incarnations_older_than_the_plans() -> None:
    node = registered(leader(), 5, 5)
    standby = Node(node.store.tree, 2)
    node.store.close()
    standby.settle()
    effects = standby.tell(e.RegistrationReceived(1, registration(1, incarnation=4)))
    assert any(isinstance(x, e.RejectStreamManager) for x in effects)


def test_suspended_master_answers_but_decides_nothing() -> None:
    node = registered(leader(), 1, 1)
    node.store.lose_connection()
    node.settle_events()
    assert node.core.mastership.role is MasterRole.SUSPENDED
    effects = node.tell(
        e.HeartbeatReceived(101, Heartbeat()),
        e.RegistrationReceived(9, registration(2, incarnation=2)),
        e.StateRequested(1, TopologyState.PAUSED),
        e.MasterTick(),
    )
    kinds = [type(x) for x in effects]
    assert e.CommitTransaction not in kinds
    assert e.SendHeartbeatReply in kinds
    assert [x.error for x in effects if isinstance(x, e.AnswerRequest)] != [""]
    assert node.core.status().leading
    node.store.restore_connection()
    node.settle()
    assert node.leading
    assert sent_plans(node.effects)[-1].stream_manager(2) == info(2, 2), "what was held back is decided now"


def test_lost_session_steps_down_and_campaigns_again() -> None:
    node = registered(leader(), 1, 1)
    node.store.expire_session()
    node.settle()
    assert node.leading
    assert node.led == [1, 2]
    assert any(isinstance(x, e.CloseLinks) and x.links == (101, 102) for x in node.effects)


@pytest.mark.parametrize(
    "word",
    [
        e.HeartbeatReceived(101, Heartbeat(plan=PlanVersion(7, 3))),
        e.HeartbeatReceived(101, Heartbeat(plan=PlanVersion(1, 1), epoch=7)),
        e.RegistrationReceived(103, replace(registration(2, 2, PlanVersion(1, 1)), epoch=7)),
        e.StateRequested(1, TopologyState.PAUSED, 7),
    ],
    ids=["plan", "heartbeat", "register", "command"],
)
def test_higher_epoch_in_any_message_ends_leadership(word: e.Event) -> None:
    node = registered(leader(), 1, 1)
    effects = node.tell(word)
    assert not node.leading
    assert [x.error for x in effects if isinstance(x, e.AnswerRequest)] == [NOT_LEADING] * isinstance(
        word, e.StateRequested
    )
    node.settle()
    assert node.led == [1, 8]
    assert node.core.wanted_state is TopologyState.RUNNING, "who asks goes to the master that the store names"


def test_command_with_an_older_epoch_is_accepted() -> None:
    """The addressed process was elected again in the meantime and leads, as the caller wants."""
    node = registered(leader(), 1, 1)
    node.store.expire_session()
    node.settle()
    node.tell(e.StateRequested(1, TopologyState.PAUSED, 1))
    node.settle()
    assert node.led == [1, 2]
    assert node.core.wanted_state is TopologyState.PAUSED


def test_more_containers_change_the_routing_and_move_few_groups() -> None:
    node = registered(leader(), 1, 1)
    node.store.commit([Set(paths.packing_plan(NAME), message_codecs.PACKING_PLAN.encode(packing(3)))])
    node.settle()
    assert len(sent_plans(node.effects)) == 1
    node.tell(e.RegistrationReceived(33, registration(3)))
    node.settle()
    old, new = sent_plans(node.effects)[0], sent_plans(node.effects)[-1]
    assert new.routing_version == old.routing_version + 1
    moved = sum(a != b for a, b in zip(old.key_group_table("count"), new.key_group_table("count"), strict=True))
    assert moved == pytest.approx(1024 / 3, abs=2)


@given(st.integers(0, 2**32), st.integers(2, 4))
def test_at_most_one_master_leads(seed: int, masters: int) -> None:
    """Any interleaving of steps, lost connections and expired sessions: one leader, growing epochs and plans."""
    chance = random.Random(seed)
    tree = MemoryTree()
    nodes = [Node(tree, port) for port in range(1, masters + 1)]
    submit(nodes[0].store)
    highest = PlanVersion()
    for number in range(250):
        node = chance.choice(nodes)
        what = chance.random()
        if what < 0.80:
            node.step()
        elif what < 0.86:
            node.store.lose_connection()
        elif what < 0.94:
            node.store.restore_connection()
        elif what < 0.96:
            node.store.expire_session()
        else:
            container = chance.choice((1, 2))
            node.tell(e.RegistrationReceived(1000 + number, registration(container, number)))
        owners = [n for n in nodes if n.leading and not any(isinstance(x, e.SessionChanged) for x in n.events)]
        assert len([n for n in owners if n.core.mastership.epoch == max(m.core.mastership.epoch for m in owners)]) <= 1
        watcher = tree.nodes.get(paths.physical_plan(NAME))
        if watcher is not None:
            version = message_codecs.PHYSICAL_PLAN.decode(watcher.data).version
            assert version >= highest
            highest = version
    epochs = sorted(epoch for n in nodes for epoch in n.led)
    assert len(epochs) == len(set(epochs)), "two masters led with one epoch"
    for node in nodes:
        node.store.restore_connection()
    for _ in range(40):
        for node in nodes:
            node.settle()
    assert sum(node.leading for node in nodes) == 1
    assert [n.core.mastership.acting for n in nodes].count(True) == 1


RUNNING = ExecutionState(NAME, ID, "local", "me", "default", TopologyState.RUNNING)


def session(tree: MemoryTree, port: int) -> tuple[MemoryStore, MasterStore]:
    store = MemoryStore(tree)
    store.open()
    launch = Launch("local", "me", "default", NAME, ID, "memory://", "/nowhere", "/nowhere")
    return store, MasterStore(store, launch, MasterLocation(ID, "here", port, 0, port), lambda event: None)


def test_only_the_owner_of_the_node_writes() -> None:
    tree = MemoryTree()
    (store, first), (_, second) = session(tree, 1), session(tree, 2)
    store.commit(
        [
            Create(paths.topology(NAME), message_codecs.TOPOLOGY.encode(definition())),
            Create(paths.execution_state(NAME), message_codecs.EXECUTION_STATE.encode(RUNNING)),
        ]
    )
    assert first.commit(e.Campaign(1, -1))[0] is e.WriteResult.DONE
    stored = read_stored(store, NAME)
    paused = ExecutionState(NAME, ID, "local", "me", "default", TopologyState.PAUSED)
    write = e.CommitTransaction(None, -1, paused, stored.execution_version)
    assert second.commit(write)[0] is e.WriteResult.NOT_OWNER, "there is a master node, and it is another session's"
    assert read_stored(store, NAME).execution == RUNNING
    assert second.commit(e.Resign("it is not mine"))[0] is not e.WriteResult.DONE
    assert read_stored(store, NAME).master is not None
    assert first.commit(write)[0] is e.WriteResult.DONE
    assert first.commit(e.Resign("done"))[0] is e.WriteResult.DONE
    assert second.commit(e.Campaign(2, read_stored(store, NAME).epoch_version))[0] is e.WriteResult.DONE
    stored = read_stored(store, NAME)
    again = e.CommitTransaction(None, -1, RUNNING, stored.execution_version)
    assert first.commit(again)[0] is e.WriteResult.NOT_OWNER
