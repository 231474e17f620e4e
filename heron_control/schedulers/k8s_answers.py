"""Interpretation of a Kubernetes cluster's answers about containers and nodes. Other modules do not parse them.

The functions are pure. ``life_of`` derives the state of a container from its record (``k8s_plan``). The last reported
state of a Pod does not count if its node is lost. The Pod may still run there, disconnected, and ends when the node is
back. Until then the incarnations of its processes keep it from doing harm.

Kubernetes calls a node unknown if its kubelet has not reported for a while. This also happens if the API server was
unavailable, since kubelets report to it. Therefore ``Sight`` records when the API server came back. A node that is
found unknown after that is lost once its kubelet has had GRACE_SECONDS to report again. A node that was unknown before
does not get this time again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from heron_control.schedulers.k8s_plan import STARTED_LABEL

AWAY_SECONDS = 10.0  # the scheduler looks every two seconds
GRACE_SECONDS = 40.0  # Kubernetes' default for a silent kubelet, which reports every ten seconds


@dataclass(frozen=True, slots=True)
class Node:
    """Node of the cluster. ``lost``: its kubelet no longer reports; ``Sight`` decides when it counts as lost."""

    lost: bool
    cores: float
    takes: bool = True  # accepts Pods of topologies: not cordoned, without a taint that they do not tolerate
    labels: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Life:
    """State of a record.

    ``state`` is a state of ``Seen``. ``trouble`` is the reason why it does not run yet, or how it ended. ``lost`` is
    True if it ended because its node was lost.
    """

    state: str
    trouble: str = ""
    lost: bool = False
    exit_code: int | None = None
    out_of_memory: bool | None = None


def node_of(found: Mapping[str, Any]) -> Node:
    """Parse a node.

    A node whose kubelet itself reports that it is not ready is not lost: its Pods continue to run.
    """
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
    """Return the number of nodes that accept Pods with this node selector, provided they have room.

    Return 0 if the account may not read nodes (``nodes`` is None).
    """
    shown = (nodes or {}).values()
    return sum(node.takes and not node.lost and selector.items() <= node.labels.items() for node in shown)


def cores(quantity: str) -> float:
    """Parse a quantity of processors, for example ``3920m`` or ``4``, into cores."""
    return float(quantity[:-1]) / 1000 if quantity.endswith("m") else float(quantity)


@dataclass(frozen=True, slots=True)
class Sight:
    """Times at which the cluster answered, in seconds of a monotonic clock.

    ``answered`` is the time of the last answer. ``back`` is the time of the first answer after the API server was
    unavailable; it counts as unavailable before the first answer. ``unknown`` maps each node that is unknown now to the
    value of ``back`` when the node was first found unknown.
    """

    answered: float = float("-inf")
    back: float = float("-inf")
    unknown: Mapping[str, float] = field(default_factory=dict)

    def look(self, nodes: Mapping[str, Node], now: float) -> tuple[Sight, dict[str, Node]]:
        """Record that the cluster answered with ``nodes`` at the time ``now``.

        Returns:
            The new record, and the nodes. A node that still has time to report does not count as lost.
        """
        back = now if now - self.answered > AWAY_SECONDS else self.back
        unknown = {name: self.unknown.get(name, back) for name, node in nodes.items() if node.lost}
        judged = {
            name: replace(node, lost=node.lost and now - unknown[name] >= GRACE_SECONDS) for name, node in nodes.items()
        }
        return Sight(now, back, unknown), judged


def life_of(record: Mapping[str, Any], pod: Mapping[str, Any] | None, nodes: Mapping[str, Node] | None) -> Life:
    """Return the state of a record, given its Pod. ``nodes`` is None if the account may not read nodes."""
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
        gone = "is no longer in the cluster" if name not in nodes else "no longer reports"
        return Life("exited", f"its node {name} {gone}; it may run on there, cut off, until the node is back", True)
    if phase == "Running":
        return Life("running")
    return Life("starting", _waits(status, copying, name) or _waits(status, container, name))


def _ended(status: Mapping[str, Any], ended: Mapping[str, Any] | None) -> Life:
    if not ended:  # evicted, or rejected by its node
        said = " ".join(filter(None, (status.get("reason", ""), status.get("message", ""))))
        return Life("exited", said or "it ended, and its node reports no exit status")
    lines = [line.strip() for line in str(ended.get("message", "")).splitlines() if line.strip()]
    evicted = f"{status['reason']} {status.get('message', '')}".strip() if status.get("reason") else ""
    last = evicted or (lines[-1] if lines else "")
    if ended.get("reason") == "ContainerStatusUnknown":
        return Life("exited", last or "its node lost sight of it")
    return Life("exited", last, False, int(ended["exitCode"]), ended.get("reason") == "OOMKilled")


def _waits(status: Mapping[str, Any], container: Mapping[str, Any], node: str) -> str:
    """Return the reason why a Pod does not run yet, or "" if it is being prepared."""
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
                "add nodes or request less (kubectl describe nodes, topology.component.rammap)"
            )
    return ""
