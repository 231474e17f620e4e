"""What a Kubernetes cluster's answers say of containers and nodes: they are read here, and nowhere else.

Pure. ``life_of`` says what a record (``k8s_plan``) amounts to. What a Pod was last seen doing does not count where its
node is lost: it may run on there, cut off, and ends when the node is back; the incarnations of its processes keep it
from doing harm until then.

Kubernetes calls a node unknown when its kubelet has said nothing for a while, also when the reason is that the API
server was away, which is where kubelets say it. So ``Sight`` keeps when the API server came back: a node that is found
unknown after that is lost when the kubelets have had GRACE_SECONDS to speak again, and a node that was unknown before
is not given another time.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from heron_control.schedulers.k8s_plan import STARTED_LABEL

AWAY_SECONDS = 10.0  # the scheduler looks every two seconds
GRACE_SECONDS = 40.0  # as Kubernetes gives a silent kubelet by default; it speaks every ten


@dataclass(frozen=True, slots=True)
class Node:
    """Node of the cluster. ``lost``: its kubelet no longer reports; ``Sight`` decides when it counts as lost."""

    lost: bool
    cores: float
    takes: bool = True  # Pods of topologies: it is not cordoned, and has no taint that they do not tolerate
    labels: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Life:
    """What a record amounts to. ``state``: as in ``Seen``; ``trouble``: why it does not run yet, or how it ended."""

    state: str
    trouble: str = ""
    lost: bool = False
    exit_code: int | None = None
    out_of_memory: bool | None = None


def node_of(found: Mapping[str, Any]) -> Node:
    """What is said of a node. One whose kubelet says itself that it is not ready is not lost: its Pods run on."""
    status = found.get("status", {})
    ready = next((c["status"] for c in status.get("conditions", ()) if c["type"] == "Ready"), "Unknown")
    spec = found.get("spec", {})
    refused = any(taint.get("effect") in ("NoSchedule", "NoExecute") for taint in spec.get("taints") or ())
    return Node(
        ready == "Unknown",
        cores(status.get("allocatable", {}).get("cpu", "0")),
        not (refused or spec.get("unschedulable", False)),
        found.get("metadata", {}).get("labels") or {},
    )


def takers(nodes: Mapping[str, Node] | None, selector: Mapping[str, str]) -> int:
    """How many nodes take Pods with this selector of nodes, if there is room; 0 where nobody may look at nodes."""
    shown = (nodes or {}).values()
    return sum(node.takes and not node.lost and selector.items() <= node.labels.items() for node in shown)


def cores(quantity: str) -> float:
    """A quantity of processors, as ``3920m`` or ``4``."""
    return float(quantity[:-1]) / 1000 if quantity.endswith("m") else float(quantity)


@dataclass(frozen=True, slots=True)
class Sight:
    """When the cluster answered, in seconds of one clock. ``back``: when it did so first after it had been away, which
    before the first answer it was; ``unknown``: each node that is unknown now, and ``back`` as it was when the node
    was first found so."""

    answered: float = float("-inf")
    back: float = float("-inf")
    unknown: Mapping[str, float] = field(default_factory=dict)

    def look(self, nodes: Mapping[str, Node], now: float) -> tuple[Sight, dict[str, Node]]:
        """The cluster shows ``nodes`` now. Returns what is known from now on, and the nodes with those that still have
        time to speak not lost."""
        back = now if now - self.answered > AWAY_SECONDS else self.back
        unknown = {name: self.unknown.get(name, back) for name, node in nodes.items() if node.lost}
        judged = {
            name: replace(node, lost=node.lost and now - unknown[name] >= GRACE_SECONDS) for name, node in nodes.items()
        }
        return Sight(now, back, unknown), judged


def life_of(record: Mapping[str, Any], pod: Mapping[str, Any] | None, nodes: Mapping[str, Node] | None) -> Life:
    """What a record amounts to. ``nodes``: None where nobody may look at them."""
    if pod is None:
        started = STARTED_LABEL in (record["metadata"].get("labels") or {})
        return Life("exited", "its Pod was deleted") if started else Life("created")
    status = pod.get("status", {})
    phase = status.get("phase", "Pending")
    container: Mapping[str, Any] = next(iter(status.get("containerStatuses") or ()), {})
    copying: Mapping[str, Any] = next(iter(status.get("initContainerStatuses") or ()), {})
    ended = container.get("state", {}).get("terminated")
    if phase in ("Succeeded", "Failed") or (ended and phase == "Running"):
        return _ended(status, ended or copying.get("state", {}).get("terminated"))
    name = pod["spec"].get("nodeName", "")
    if name and nodes is not None and (name not in nodes or nodes[name].lost):
        gone = "is no longer in the cluster" if name not in nodes else "is not heard of any more"
        return Life("exited", f"its node {name} {gone}; it may run on there, cut off, until the node is back", True)
    if phase == "Running":
        return Life("running")
    return Life("starting", _waits(status, copying, name) or _waits(status, container, name))


def _ended(status: Mapping[str, Any], ended: Mapping[str, Any] | None) -> Life:
    if not ended:  # evicted, or refused by its node
        said = " ".join(filter(None, (status.get("reason", ""), status.get("message", ""))))
        return Life("exited", said or "it ended, and its node does not say how")
    lines = [line.strip() for line in str(ended.get("message", "")).splitlines() if line.strip()]
    evicted = f"{status['reason']} {status.get('message', '')}".strip() if status.get("reason") else ""
    last = evicted or (lines[-1] if lines else "")
    if ended.get("reason") == "ContainerStatusUnknown":
        return Life("exited", last or "its node lost sight of it")
    return Life("exited", last, False, int(ended["exitCode"]), ended.get("reason") == "OOMKilled")


def _waits(status: Mapping[str, Any], container: Mapping[str, Any], node: str) -> str:
    """For what a Pod waits that does not run yet; "" where it is just being made ready."""
    waiting = container.get("state", {}).get("waiting", {})
    reason, said = waiting.get("reason", ""), waiting.get("message", "")
    if reason in ("ErrImageNeverPull", "ErrImagePull", "ImagePullBackOff", "InvalidImageName"):
        return f"the image is not on {node} and cannot be fetched there: {said or reason}"
    if reason not in ("", "ContainerCreating", "PodInitializing"):
        return f"{node} cannot start it: {reason} {said}".strip()
    for condition in status.get("conditions", ()):
        if condition["type"] == "PodScheduled" and condition["status"] == "False":
            return (
                f"waits for a place: {condition.get('message') or condition.get('reason', '')}; "
                "add nodes or ask for less (kubectl describe nodes, topology.component.rammap)"
            )
    return ""
