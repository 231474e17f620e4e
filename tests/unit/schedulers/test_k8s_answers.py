"""Interpretation of Kubernetes answers about containers and nodes."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product
from typing import Any

from heron_control.schedulers import k8s_plan
from heron_control.schedulers.k8s_plan import Life, Node, life_of

NODES = {"n1": Node(False, 2.0), "n2": Node(True, 2.0)}
RECORD = {"metadata": {"labels": {k8s_plan.STARTED_LABEL: "1"}}}
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
    assert life_of(RECORD, None, NODES) == Life("exited", "its Pod was deleted")


def test_exit_code_and_last_message_are_kept() -> None:
    ended = {"terminated": {"exitCode": 3, "reason": "Error", "message": "so far\nout of coffee\n"}}
    assert life_of(RECORD, shown("Failed", state=ended), NODES) == Life("exited", "out of coffee", False, 3, False)
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
        assert k8s_plan.node_of({"status": status}) == Node(lost, 3.92)
