"""Kubernetes answers about containers and nodes, and nodes that are lost.

A silent node is lost at once, or after a grace period if the API server was unavailable. The properties of lost nodes
hold for all histories of nodes whose kubelets are silent or not, observed at any intervals.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise, product
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from heron_control.schedulers import kubernetes_objects
from heron_control.schedulers.engine import ObservedState
from heron_control.schedulers.kubernetes_objects import (
    AWAY_SECONDS,
    GRACE_SECONDS,
    KubernetesNode,
    NodeSilenceTracker,
    life_of,
)

NODES = {"n1": KubernetesNode(False, 2.0), "n2": KubernetesNode(True, 2.0)}
RECORD = {"metadata": {"labels": {kubernetes_objects.STARTED_LABEL: "1"}}}
FRESH = {"metadata": {"labels": {}}}


def shown(phase: str, node: str = "n1", state: Mapping[str, Any] | None = None, **status: Any) -> dict[str, Any]:
    containers = [{"state": state}] if state is not None else []
    return {"spec": {"nodeName": node}, "status": {"phase": phase, "containerStatuses": containers, **status}}


def test_container_lives_while_its_pod_may_run_on_an_existing_node() -> None:
    for phase, node, nodes in product(
        ("Pending", "Running", "Succeeded", "Failed"), ("", "n1", "n2", "n3"), (NODES, None)
    ):
        life = life_of(RECORD, shown(phase, node), nodes)
        alive = phase in ("Pending", "Running") and (nodes is None or node in ("", "n1"))
        assert (life.state in ("starting", "running")) == alive, (phase, node)
        assert life.lost == (phase in ("Pending", "Running") and not alive)
    assert life_of(FRESH, None, NODES).state == "created"
    assert life_of(RECORD, None, NODES) == ObservedState("exited", "its Pod was deleted")


def test_exit_code_and_last_message_are_kept() -> None:
    ended = {"terminated": {"exitCode": 3, "reason": "Error", "message": "so far\nout of coffee\n"}}
    assert life_of(RECORD, shown("Failed", state=ended), NODES) == ObservedState(
        "exited", "out of coffee", False, 3, False
    )
    memory = {"terminated": {"exitCode": 137, "reason": "OOMKilled"}}
    assert life_of(RECORD, shown("Failed", state=memory), NODES).out_of_memory
    evicted = life_of(RECORD, shown("Failed", reason="Evicted", message="The node was low on memory."), NODES)
    assert (evicted.exit_code, evicted.trouble) == (None, "Evicted The node was low on memory.")


def test_waiting_pod_reports_its_reason() -> None:
    image = {"waiting": {"reason": "ImagePullBackOff", "message": "Back-off"}}
    assert "the image is not on n1" in life_of(RECORD, shown("Pending", state=image), NODES).trouble
    place = [{"type": "PodScheduled", "status": "False", "message": "0/2 nodes are available: 2 Insufficient memory."}]
    found = life_of(RECORD, shown("Pending", "", conditions=place), NODES)
    assert (found.state, "2 Insufficient memory" in found.trouble) == ("starting", True)
    copying = {"initContainerStatuses": [{"state": image}]}
    waits = {"waiting": {"reason": "PodInitializing"}}
    assert "the image is not on n1" in life_of(RECORD, shown("Pending", state=waits, **copying), NODES).trouble
    making = {"waiting": {"reason": "ContainerCreating"}}
    assert life_of(RECORD, shown("Pending", state=making), NODES).trouble == ""


def test_node_with_unknown_readiness_is_lost() -> None:
    for said, lost in (("True", False), ("False", False), ("Unknown", True)):
        status = {"conditions": [{"type": "Ready", "status": said}], "allocatable": {"cpu": "3920m"}}
        assert kubernetes_objects.node_of({"status": status}) == KubernetesNode(lost, 3.92)


NAMES = ("n1", "n2")
# Seconds since the previous observation and the silent nodes; above AWAY_SECONDS, the API server was unavailable.
HISTORIES = st.lists(
    st.tuples(
        st.one_of(st.floats(0.1, AWAY_SECONDS), st.floats(AWAY_SECONDS + 0.1, 300.0)),
        st.frozensets(st.sampled_from(NAMES)),
    ),
    max_size=30,
)
_N1, _NOBODY = frozenset({"n1"}), frozenset[str]()
SILENT_BEFORE = [*[(2.0, _N1)] * 25, (60.0, _N1)]
SILENT_TWICE = [(2.0, _N1), (2.0, _NOBODY), (60.0, _N1)]


def lost(history: list[tuple[float, frozenset[str]]]) -> list[tuple[float, frozenset[str], frozenset[str]]]:
    """Return time, silent nodes and lost nodes of each observation."""
    sight, now, found = NodeSilenceTracker(), 0.0, []
    for seconds, silent in history:
        now += seconds
        sight, judged = sight.look({name: KubernetesNode(name in silent, 2.0) for name in NAMES}, now)
        found.append((now, silent, frozenset(name for name, node in judged.items() if node.lost)))
    return found


@given(HISTORIES)
@example(SILENT_BEFORE)
@example(SILENT_TWICE)
def test_ready_node_and_node_in_its_grace_period_are_not_lost(
    history: list[tuple[float, frozenset[str]]],
) -> None:
    back, before = float("-inf"), float("-inf")
    since: dict[str, float] = {}
    for now, silent, judged in lost(history):
        back = now if now - before > AWAY_SECONDS else back
        before = now
        assert judged <= silent
        since = {name: since.get(name, back) for name in silent}
        assert not [name for name in judged if now < since[name] + GRACE_SECONDS]


@given(HISTORIES)
@example(SILENT_BEFORE)
@example(SILENT_TWICE)
def test_silent_node_is_lost_after_one_grace_period(
    history: list[tuple[float, frozenset[str]]],
) -> None:
    began: dict[str, float] = {}
    for now, silent, judged in lost(history):
        began = {name: began.get(name, now) for name in silent}
        assert judged >= {name for name, first in began.items() if now >= first + GRACE_SECONDS}


@given(HISTORIES)
@example(SILENT_BEFORE)
@example(SILENT_TWICE)
def test_lost_node_stays_lost_until_it_is_ready(history: list[tuple[float, frozenset[str]]]) -> None:
    for (_, _, before), (_, silent, judged) in pairwise(lost(history)):
        assert judged >= before & silent


def test_node_that_becomes_silent_while_observed_is_lost_at_once() -> None:
    quiet: list[tuple[float, frozenset[str]]] = [(2.0, frozenset())] * 30
    assert lost([*quiet, (2.0, frozenset({"n1"}))])[-1][2] == {"n1"}


def test_short_api_server_outage_loses_no_node() -> None:
    """As observed in a real cluster: both nodes are unknown after the outage, and ready some seconds later."""
    quiet: list[tuple[float, frozenset[str]]] = [(2.0, frozenset())] * 30
    late: list[tuple[float, frozenset[str]]] = [(60.0, frozenset()), *[(2.0, frozenset(NAMES))] * 7]
    history = [*quiet, *late, *quiet]
    assert not any(judged for _, _, judged in lost(history))
    assert lost([*quiet, *late, *[(2.0, frozenset({"n2"}))] * 13])[-1][2] == {"n2"}


def test_other_facts_of_a_node_are_kept() -> None:
    _, judged = NodeSilenceTracker().look({"n1": KubernetesNode(True, 3.5), "n2": KubernetesNode(False, 1.5)}, 7.0)
    assert judged == {"n1": KubernetesNode(False, 3.5), "n2": KubernetesNode(False, 1.5)}, (
        "who has just begun to look gives them time"
    )
