"""Mapping of a topology to Kubernetes: the objects that are created for it, and the state that the cluster reports.

The functions are pure. Each *life* of a container is a ConfigMap (its record: ``launch.json`` and the Pod to create), a
Secret, and one bare Pod that is never started a second time. Secret and Pod are owned by the ConfigMap, so that they
are removed with it after any interruption.

A topology's *network* is a headless Service, which gives its Pods names, a NetworkPolicy, which keeps other Pods away
from them, and a PodDisruptionBudget. The objects are valid on every Kubernetes from 1.20 on. The version of a
PodDisruptionBudget depends on the cluster.

``life_of`` derives the state of a container from its record. The last reported state of a Pod does not count if its
node is lost. The Pod may still run there, disconnected, and ends when the node is back. Until then the incarnations of
its processes keep it from doing harm.

Kubernetes calls a node unknown if its kubelet has not reported for a while. This also happens if the API server was
unavailable, since kubelets report to it. Therefore ``NodeSilenceTracker`` records when the API server came
back. A node that is found unknown after that is lost once its kubelet has had GRACE_SECONDS to report again. A node
that was unknown before does not get this time again.
"""

from __future__ import annotations

import base64
import hashlib
import ipaddress
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from heron_control.schedulers.container_spec import (
    APART_LABEL,
    CLUSTER_LABEL,
    CONTAINER_LABEL,
    JOINS_LABEL,
    LAUNCH_FILE,
    PREFIX,
    RUNTIME_DIR,
    SHARED_MOUNTS,
    TOPOLOGY_ID_LABEL,
    TOPOLOGY_LABEL,
    VOLUME_PATH,
    ContainerLimits,
    ContainerSpec,
)
from heron_control.schedulers.engine import ObservedState
from heron_runtime.model.containers import LAST_STANDBY
from heron_runtime.model.ids import FIRST_STANDBY, MASTER_CONTAINER, holds_master

NETWORK_NOTE = f"{PREFIX}.network"  # annotation of a Pod, its record and a Service: Heronry's name of the network
VOLUME_NOTE = f"{PREFIX}.volume"  # annotation of a record and a Secret: the name of the topology's volume
RECORD_LABEL = f"{PREFIX}.record"  # on a ConfigMap that represents a life of a container
STARTED_LABEL = f"{PREFIX}.started"  # on a record whose Pod was created
POD_FILE = "pod.json"  # in a record
PUBLIC = frozenset({LAUNCH_FILE})  # those files of a container that are not secret

UNSUPPORTED_FIELDS = {
    "user": "no process changes its user: Heronry's processes and user code start as the same user",
    "limits.pids": "the kubelet's setting (podPidsLimit), not a Pod's",
    "security.added_capabilities": "of no use: no process changes its user",
    "stop_signal": "always the image's signal, or SIGTERM",
    "log_rotation": "the kubelet's setting (containerLogMaxSize)",
}
UID = 10001  # of the image's user
CONTAINER = "heron"  # the main container of a Pod
GIVEN_PATH = "/given"
_LOST = ("node.kubernetes.io/unreachable", "node.kubernetes.io/not-ready")
_MASTERS = [str(number) for number in (MASTER_CONTAINER, *range(FIRST_STANDBY, LAST_STANDBY + 1))]
_NOTED = (TOPOLOGY_LABEL, TOPOLOGY_ID_LABEL)


CLUSTER_DNS = "kube-system/k8s-app=kube-dns"  # also the labels of CoreDNS


@dataclass(frozen=True, slots=True)
class PodPlacement:
    """Placement of the Pods of topologies.

    ``selector`` holds labels of nodes. ``reach`` holds address blocks outside the cluster that Pods may reach, for
    example a state store. ``dns`` holds the cluster's name servers: Pods as NAMESPACE/LABEL=VALUE, or address blocks,
    such as that of a node's cache. ``claim`` is the PersistentVolumeClaim of storage that all nodes share.
    """

    namespace: str = "default"
    selector: tuple[tuple[str, str], ...] = ()  # labels of nodes
    pull_secret: str = ""
    reach: tuple[str, ...] = ()
    claim: str = ""
    dns: tuple[str, ...] = (CLUSTER_DNS,)


# Names.


def object_name(name: str) -> str:
    """Return the name of the object that represents ``name``: a DNS label, unique for each name."""
    slug = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-") or "x"
    slug = slug if slug[0].isalpha() else f"x{slug}"
    if slug.replace("-", "_") == name.replace("-", "_") and len(slug) <= 63:
        return slug
    digest = hashlib.blake2b(name.encode(), digest_size=5).hexdigest()
    return f"{slug[:52].rstrip('-')}-{digest}"


def label_value(value: str) -> str:
    """Return the value in a form that is valid for a label, unique for each value."""
    if re.fullmatch(r"([A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?)?", value):
        return value
    digest = hashlib.blake2b(value.encode(), digest_size=5).hexdigest()
    return f"{re.sub(r'[^A-Za-z0-9]+', '-', value)[:50].strip('-')}-{digest}".lstrip("-")


def host_of(name: str, network: str, namespace: str) -> str:
    """Return the host name of a Pod, which resolves in every namespace."""
    return f"{name}.{object_name(network)}.{namespace}.svc"


def selector(labels: Mapping[str, str]) -> str:
    """Return the selector of objects with these labels."""
    return ",".join(f"{key}={label_value(value)}" for key, value in sorted(labels.items()))


def topology_of(document: Mapping[str, Any]) -> tuple[str, str]:
    """Return the name and id of the topology that an object belongs to."""
    notes = document["metadata"].get("annotations") or {}
    return notes.get(TOPOLOGY_LABEL, ""), notes.get(TOPOLOGY_ID_LABEL, "")


def _metadata(name: str, labels: Mapping[str, str], notes: Mapping[str, str], space: str) -> dict[str, Any]:
    ours = {key: value for key, value in labels.items() if key.startswith(f"{PREFIX}.")}
    return {
        "name": name,
        "namespace": space,
        "labels": {key: label_value(value) for key, value in ours.items()},
        "annotations": {**{key: ours[key] for key in _NOTED if key in ours}, **notes},
    }


# Objects of a topology.


def service(name: str, labels: Mapping[str, str], namespace: str) -> dict[str, Any]:
    """Return the headless Service that gives the Pods of a topology their names.

    The names resolve before the Pods are ready, since the Pods must find each other first.
    """
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": _metadata(object_name(name), labels, {NETWORK_NOTE: name}, namespace),
        "spec": {"clusterIP": "None", "publishNotReadyAddresses": True, "selector": _pods_of(labels)},
    }


def policy(name: str, labels: Mapping[str, str], placing: PodPlacement, *, internal: bool) -> dict[str, Any]:
    """Return the NetworkPolicy of a topology.

    Its Pods may communicate with each other, with the cluster's services, with the blocks of ``reach`` and, on port 53,
    with the cluster's name servers. Unless the topology is ``internal``, they may reach any address. Other Pods may not
    reach them.
    """
    peers: list[dict[str, Any]] = [
        {"podSelector": {"matchLabels": _pods_of(labels)}},
        {"podSelector": {"matchLabels": {JOINS_LABEL: label_value(labels[CLUSTER_LABEL])}}},
    ]
    blocks = [{"ipBlock": {"cidr": block}} for block in placing.reach]
    out: list[dict[str, Any]] = [{"to": peers + blocks}]
    ports = [{"protocol": protocol, "port": 53} for protocol in ("UDP", "TCP")]
    out.append({"to": [_name_server(text) for text in placing.dns], "ports": ports})
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": _metadata(object_name(name), labels, {}, placing.namespace),
        "spec": {
            "podSelector": {"matchLabels": _pods_of(labels)},
            "policyTypes": ["Ingress", "Egress"],
            "ingress": [{"from": peers}],
            "egress": out if internal else [{}],
        },
    }


def is_name_server(text: str) -> bool:
    """Return True for a value of ``PodPlacement.dns``."""
    try:
        return bool(re.fullmatch(r"[a-z0-9-]+/[^=/,]+(/[^=/,]+)?=[^=/,]+", text) or ipaddress.ip_network(text))
    except ValueError:
        return False


def _name_server(text: str) -> dict[str, Any]:
    """Return the peer of a NetworkPolicy for a value of ``PodPlacement.dns``."""
    if "=" not in text:
        return {"ipBlock": {"cidr": text}}
    namespace, _, label = text.partition("/")
    key, _, value = label.partition("=")
    return {
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}},
        "podSelector": {"matchLabels": {key: value}},
    }


def disruption(
    name: str, labels: Mapping[str, str], namespace: str, containers: int, version: str = "policy/v1"
) -> dict[str, Any]:
    """Return the PodDisruptionBudget, so that draining nodes evicts one Pod at a time.

    The next Pod is evicted when the first one is ready elsewhere. The number of containers must be given, since a
    percentage does not apply to Pods without a controller.
    """
    return {
        "apiVersion": version,
        "kind": "PodDisruptionBudget",
        "metadata": _metadata(object_name(name), labels, {}, namespace),
        "spec": {"minAvailable": max(0, containers - 1), "selector": {"matchLabels": _pods_of(labels)}},
    }


def _pods_of(labels: Mapping[str, str]) -> dict[str, str]:
    """Return the labels that select a topology's Pods."""
    return {key: label_value(labels[key]) for key in (CLUSTER_LABEL, TOPOLOGY_ID_LABEL)}


# Objects of a container.


def record_of(spec: ContainerSpec, files: Mapping[str, bytes], placing: PodPlacement, takers: int) -> dict[str, Any]:
    """Return the ConfigMap that represents a container, with all that is needed to start it.

    ``takers`` is the number of nodes that accept Pods.
    """
    notes = {VOLUME_NOTE: _volume(spec), NETWORK_NOTE: spec.network}
    metadata = _metadata(spec.name, spec.labels(), notes, placing.namespace)
    metadata["labels"][RECORD_LABEL] = "1"
    public = {file: content.decode() for file, content in files.items() if file in PUBLIC}
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": metadata,
        "data": {**public, POD_FILE: json.dumps(pod_of(spec, sorted(files), placing, takers))},
    }


def secret_of(spec: ContainerSpec, files: Mapping[str, bytes], placing: PodPlacement) -> dict[str, Any]:
    """Return the Secret with the confidential files of a container."""
    labels = {key: value for key, value in spec.labels().items() if key != CONTAINER_LABEL}
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "type": "Opaque",
        "metadata": _metadata(spec.name, labels, {VOLUME_NOTE: _volume(spec)}, placing.namespace),
        "data": {file: base64.b64encode(content).decode() for file, content in files.items() if file not in PUBLIC},
    }


def pod_in(record: Mapping[str, Any]) -> dict[str, Any]:
    """Return the Pod of a record, as it is to be created."""
    pod: dict[str, Any] = json.loads(record["data"][POD_FILE])
    return pod


def owned_by(record: Mapping[str, Any], made: Mapping[str, Any]) -> dict[str, Any]:
    """Return the object with the record as its owner, so that it is removed with the record."""
    owner = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "name": record["metadata"]["name"],
        "uid": record["metadata"]["uid"],
    }
    return {**made, "metadata": {**made["metadata"], "ownerReferences": [owner]}}


def pod_of(spec: ContainerSpec, files: list[str], placing: PodPlacement, takers: int) -> dict[str, Any]:
    """Return the Pod for a container, whose ``files`` are in its start folder.

    ``takers`` is the number of nodes that accept Pods.
    """
    strict = takers >= spec.spread  # enough nodes to keep them apart
    volumes, mounts = _volumes(spec, placing.claim)
    if files:
        start = {"name": "start", "mountPath": spec.start_folder}
        volumes.append({"name": "start", "emptyDir": {"medium": "Memory", "sizeLimit": "1Mi"}})
        volumes.append({"name": "given", "projected": {"defaultMode": 0o440, "sources": _sources(spec.name, files)}})
        mounts.append(start)
    security = spec.security
    container: dict[str, Any] = {
        "name": CONTAINER,
        "image": spec.image,
        "imagePullPolicy": "IfNotPresent",
        "args": list(spec.command),
        "env": [{"name": name, "value": value} for name, value in spec.environment],
        "resources": _resources(spec.limits),
        "volumeMounts": mounts,
        "terminationMessagePolicy": "FallbackToLogsOnError",  # report its last log lines if it fails
        "securityContext": {
            "allowPrivilegeEscalation": not security.no_new_privileges,
            "capabilities": {"drop": list(security.dropped_capabilities)},
            "readOnlyRootFilesystem": security.read_only_root,
        },
    }
    if spec.number is not None and files:
        container["readinessProbe"] = _probe(spec.number)
    pod: dict[str, Any] = {
        "restartPolicy": "Never",
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "shareProcessNamespace": spec.reap_orphans,  # the Pod's first process reaps orphans
        "terminationGracePeriodSeconds": spec.stop_grace_seconds,
        "securityContext": {
            "runAsNonRoot": True, "runAsUser": UID, "runAsGroup": UID, "fsGroup": UID,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "nodeSelector": dict(placing.selector),
        "tolerations": [{"key": key, "operator": "Exists", "effect": "NoExecute"} for key in _LOST],
        "affinity": _apart(spec.labels(), strict=strict),
        "hostname": spec.name,
        "containers": [container],
        "initContainers": [_copying(container, start)] if files else [],
        "volumes": volumes,
    }  # fmt: skip
    if spec.network:
        pod["subdomain"] = object_name(spec.network)
    if placing.pull_secret:
        pod["imagePullSecrets"] = [{"name": placing.pull_secret}]
    labels = {key: value for key, value in spec.labels().items() if strict or key != APART_LABEL}
    metadata = _metadata(spec.name, labels, {NETWORK_NOTE: spec.network}, placing.namespace)
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": pod}


def _volume(spec: ContainerSpec) -> str:
    return spec.volume.name if spec.volume is not None else ""


def _copying(container: Mapping[str, Any], start: Mapping[str, Any]) -> dict[str, Any]:
    """Return the init container that copies the files, so that the container's user owns them.

    The files that Kubernetes mounts belong to root and are readable by a group.
    """
    # Create the mount points of nested mounts here. Otherwise the node would create them for root only.
    inside = [m["mountPath"] for m in container["volumeMounts"] if "subPath" in m]
    volume = [m for m in container["volumeMounts"] if m["name"] == "volume"]
    same = ("image", "imagePullPolicy", "resources", "securityContext", "terminationMessagePolicy")
    made = f"umask 077; mkdir -p {' '.join(inside)}; " if inside else ""
    copy = f"set -e; {made}install -m 0400 {GIVEN_PATH}/* {start['mountPath']}/"
    return {
        **{key: container[key] for key in same},
        "name": "files",
        "args": ["sh", "-c", copy],
        "volumeMounts": [*volume, start, {"name": "given", "mountPath": GIVEN_PATH, "readOnly": True}],
    }


def _resources(limits: ContainerLimits | None) -> dict[str, Any]:
    """Return the resources of a Pod, with the same limits as on Docker. A kubelet gives no swap by default.

    It requests the memory, and the cores except those of Heronry's own processes.
    """
    if limits is None:
        return {}
    milli, own = max(int(limits.cpus * 1000), 1), int(limits.own_cpus * 1000)
    return {
        "limits": {"memory": str(limits.memory_bytes), "cpu": f"{milli}m"},
        "requests": {"memory": str(limits.memory_bytes), "cpu": f"{max(milli - own, 1)}m"},
    }


def _volumes(spec: ContainerSpec, claim: str) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return the volumes and mounts of a Pod: on the node's disk or in memory, removed with the Pod.

    Folders of the ``claim``, if it is not "", are not removed.
    """
    volumes: list[dict[str, Any]] = []
    mounts: list[dict[str, Any]] = []
    if spec.volume is not None:
        volumes.append({"name": "volume", "emptyDir": {}})
        mount: dict[str, Any] = {"name": "volume", "mountPath": VOLUME_PATH}
        mounts.append({**mount, "readOnly": True} if spec.volume.read_only else mount)
    for number, memory in enumerate(sorted(spec.tmpfs, key=lambda mount: mount.path)):
        name = f"memory-{number}"
        volumes.append({"name": name, "emptyDir": {"medium": "Memory", "sizeLimit": str(memory.size_bytes)}})
        mounts.append({"name": name, "mountPath": memory.path})
    if claim and spec.volume is not None:
        volumes.append({"name": "shared", "persistentVolumeClaim": {"claimName": claim}})
        mounts += [
            {"name": "shared", "mountPath": target, "subPath": f"{spec.volume.name}/{folder}"}
            for folder, target in SHARED_MOUNTS.items()
        ]
    return volumes, mounts


def _sources(name: str, files: list[str]) -> list[dict[str, Any]]:
    def items(wanted: list[str]) -> list[dict[str, str]]:
        return [{"key": file, "path": file} for file in wanted]

    return [
        {"configMap": {"name": name, "items": items([file for file in files if file in PUBLIC])}},
        {"secret": {"name": name, "items": items([file for file in files if file not in PUBLIC])}},
    ]


def _probe(number: int) -> dict[str, Any]:
    """Return the readiness probe: a container is ready when it has begun its work.

    A liveness probe is not needed, since heron_container monitors its own processes.
    """
    file = f"container{number}.lock" if holds_master(number) else f"sm{number}.sock"
    return {
        "exec": {"command": ["test", "-e", f"{RUNTIME_DIR}/{file}"]},
        "periodSeconds": 5, "timeoutSeconds": 5, "failureThreshold": 3,
    }  # fmt: skip


def _apart(labels: Mapping[str, str], *, strict: bool) -> dict[str, Any]:
    """Return the affinity that spreads the Pods of a topology over nodes and zones as far as possible.

    If ``strict``, Pods that must run apart never share a node. Kubernetes also keeps a Pod away from a node because of
    the anti-affinity of another Pod there. Therefore a Pod that was created while there were too few nodes lacks the
    label that these rules select.
    """
    host, zone = "kubernetes.io/hostname", "topology.kubernetes.io/zone"
    ours = _pods_of(labels)
    weights = [(100, _term(host, ours)), (50, _term(zone, ours))]
    rules: dict[str, Any] = {}
    if APART_LABEL in labels:
        masters = {"key": CONTAINER_LABEL, "operator": "In", "values": _MASTERS}
        weights.append((100, _term(host, ours, masters)))
        if strict:
            apart = {**ours, APART_LABEL: labels[APART_LABEL]}
            rules["requiredDuringSchedulingIgnoredDuringExecution"] = [_term(host, apart)]
    rules["preferredDuringSchedulingIgnoredDuringExecution"] = [
        {"weight": weight, "podAffinityTerm": term} for weight, term in weights
    ]
    return {"podAntiAffinity": rules}


def _term(key: str, labels: Mapping[str, str], *expressions: Mapping[str, Any]) -> dict[str, Any]:
    chosen: dict[str, Any] = {"matchLabels": dict(labels)}
    if expressions:
        chosen["matchExpressions"] = list(expressions)
    return {"topologyKey": key, "labelSelector": chosen}


AWAY_SECONDS = 10.0  # the scheduler looks every two seconds
GRACE_SECONDS = 40.0  # Kubernetes' default for a silent kubelet, which reports every ten seconds


@dataclass(frozen=True, slots=True)
class KubernetesNode:
    """Node of the cluster.

    ``lost``: its kubelet no longer reports; ``NodeSilenceTracker`` decides when it counts as lost.
    """

    lost: bool
    cores: float
    takes: bool = True  # accepts Pods of topologies: not cordoned, without a taint that they do not tolerate
    labels: Mapping[str, str] = field(default_factory=dict)


def node_of(document: Mapping[str, Any]) -> KubernetesNode:
    """Parse a node.

    A node whose kubelet itself reports that it is not ready is not lost: its Pods continue to run.
    """
    status = document.get("status", {})
    ready = next((c["status"] for c in status.get("conditions", ()) if c["type"] == "Ready"), "Unknown")
    spec = document.get("spec", {})
    refused = any(taint.get("effect") in ("NoSchedule", "NoExecute") for taint in spec.get("taints") or ())
    return KubernetesNode(
        ready == "Unknown",
        cores(status.get("allocatable", {}).get("cpu", "0")),
        not (refused or spec.get("unschedulable", False)),
        document.get("metadata", {}).get("labels") or {},
    )


def takers(nodes: Mapping[str, KubernetesNode] | None, selector: Mapping[str, str]) -> int:
    """Return the number of nodes that accept Pods with this node selector, provided they have room.

    Return 0 if the account may not read nodes (``nodes`` is None).
    """
    shown = (nodes or {}).values()
    return sum(node.takes and not node.lost and selector.items() <= node.labels.items() for node in shown)


def cores(quantity: str) -> float:
    """Parse a quantity of processors, for example ``3920m`` or ``4``, into cores."""
    return float(quantity[:-1]) / 1000 if quantity.endswith("m") else float(quantity)


@dataclass(frozen=True, slots=True)
class NodeSilenceTracker:
    """Times at which the cluster answered, in seconds of a monotonic clock.

    ``answered`` is the time of the last answer. ``back`` is the time of the first answer after the API server was
    unavailable; it counts as unavailable before the first answer. ``unknown`` maps each node that is unknown now to the
    value of ``back`` when the node was first found unknown.
    """

    answered: float = float("-inf")
    back: float = float("-inf")
    unknown: Mapping[str, float] = field(default_factory=dict)

    def look(
        self, nodes: Mapping[str, KubernetesNode], now: float
    ) -> tuple[NodeSilenceTracker, dict[str, KubernetesNode]]:
        """Record that the cluster answered with ``nodes`` at the time ``now``.

        Returns:
            The new record, and the nodes. A node that still has time to report does not count as lost.
        """
        back = now if now - self.answered > AWAY_SECONDS else self.back
        unknown = {name: self.unknown.get(name, back) for name, node in nodes.items() if node.lost}
        judged = {
            name: replace(node, lost=node.lost and now - unknown[name] >= GRACE_SECONDS) for name, node in nodes.items()
        }
        return NodeSilenceTracker(now, back, unknown), judged


def life_of(
    record: Mapping[str, Any], pod: Mapping[str, Any] | None, nodes: Mapping[str, KubernetesNode] | None
) -> ObservedState:
    """Return the state of a record, given its Pod. ``nodes`` is None if the account may not read nodes."""
    if pod is None:
        started = STARTED_LABEL in (record["metadata"].get("labels") or {})
        return ObservedState("exited", "its Pod was deleted") if started else ObservedState("created")
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
        return ObservedState(
            "exited", f"its node {name} {gone}; it may run on there, cut off, until the node is back", True
        )
    if phase == "Running":
        return ObservedState("running")
    return ObservedState("starting", _waits(status, copying, name) or _waits(status, container, name))


def _ended(status: Mapping[str, Any], ended: Mapping[str, Any] | None) -> ObservedState:
    if not ended:  # evicted, or rejected by its node
        said = " ".join(filter(None, (status.get("reason", ""), status.get("message", ""))))
        return ObservedState("exited", said or "it ended, and its node reports no exit status")
    lines = [line.strip() for line in str(ended.get("message", "")).splitlines() if line.strip()]
    evicted = f"{status['reason']} {status.get('message', '')}".strip() if status.get("reason") else ""
    last = evicted or (lines[-1] if lines else "")
    if ended.get("reason") == "ContainerStatusUnknown":
        return ObservedState("exited", last or "its node lost sight of it")
    return ObservedState("exited", last, False, int(ended["exitCode"]), ended.get("reason") == "OOMKilled")


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
