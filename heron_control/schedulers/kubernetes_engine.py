"""Kubernetes as a container engine. ``kubernetes_objects`` defines the form of a container on it.

The id of a container is the name and the uid of its record, so that two lives of a container cannot be confused. The
Pod is created when the container is started, and reports its own end. A container is stopped by deleting its Pod with
the grace time, and then the way it ended is unknown. If a node is lost, Kubernetes keeps the Pod until the node is
back. The scheduler removes the Pod anyway, and starts another.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator, Mapping
from typing import Any

from heron_control.schedulers import container_spec
from heron_control.schedulers import kubernetes_objects as plan
from heron_control.schedulers.container_spec import ContainerSpec
from heron_control.schedulers.engine import (
    ClusterService,
    ContainerExit,
    EngineContainer,
    EngineError,
    ObservedState,
    TopologyOwner,
)
from heron_control.schedulers.kubernetes_client import CONFLICT, KubernetesClient, KubernetesRequestError
from heron_control.schedulers.kubernetes_objects import PodPlacement
from heron_control.schedulers.shared_storage import OfNodes, SharedStorage

log = logging.getLogger(__name__)
GONE_SECONDS = 60.0
LOOK_SECONDS = 0.2
REPLACES = 5  # another client may change an object between a read and an update


class KubernetesEngine(OfNodes):
    """Implementation of ``heron_control.schedulers.engine.ContainerEngine`` for Kubernetes."""

    def __init__(self, project: str, placing: PodPlacement, storage: SharedStorage | None = None) -> None:
        self.project = project
        self._placing = placing
        self._storage = storage
        self._api = KubernetesClient(placing.namespace)
        self._sight = plan.NodeSilenceTracker()
        self._looking = threading.Lock()

    # Queries.

    def host(self, name: str, network: str) -> str:
        """Return the name of a Pod in its topology's domain, which every Pod of the cluster can resolve."""
        return plan.host_of(name, network, self._placing.namespace)

    def cores(self) -> float:
        """Return the cores of the largest node that is not lost, or infinity if the account may not read nodes."""
        nodes = self._nodes()
        if nodes is None:
            return float("inf")
        return max((node.cores for node in nodes.values() if not node.lost), default=0.01)

    def _nodes(self) -> dict[str, plan.KubernetesNode] | None:
        nodes = self._api.nodes()
        if nodes is None:
            return None
        shown = {name: plan.node_of(node) for name, node in nodes.items()}
        with self._looking:
            before = self._sight
            self._sight, judged = before.look(shown, time.monotonic())
        for name in sorted(name for name, node in judged.items() if shown[name].lost and not node.lost):
            if name not in before.unknown:
                log.warning(
                    "node %s is not heard of since Kubernetes' API server was away (or since this process looks); what "
                    "runs there is replaced if that is so %g s after it is back", name, plan.GRACE_SECONDS,
                )  # fmt: skip
        return judged

    def require_image(self, image: str) -> None:
        """Check that the cluster answers.

        Nodes report only when they start a container whether they have the image or can pull it.
        """
        self._api.list("ConfigMap", self._ours(container_spec.TOPOLOGY_ID_LABEL))

    def containers(self) -> list[EngineContainer]:
        """Return the containers of all topologies of the cluster in any state."""
        records = self._api.list("ConfigMap", self._ours(plan.RECORD_LABEL))
        pods = self._pods_by_owner()  # read after the records: a started record has a Pod, unless it is gone
        nodes = self._nodes()
        return [_seen(record, plan.life_of(record, pods.get(_uid(record)), nodes)) for record in records]

    def _pods_by_owner(self) -> dict[str, dict[str, Any]]:
        """Return the Pod of each record by the record's uid."""
        pods = self._api.list("Pod", self._ours(container_spec.CONTAINER_LABEL))
        return {owner["uid"]: pod for pod in pods for owner in pod["metadata"].get("ownerReferences") or ()}

    def joiners(self) -> list[ClusterService]:
        """Return an empty list.

        Every Pod can be reached without joining a network, and the topology's policy admits the cluster's services.
        """
        return []

    def connect(self, joiner: ClusterService, network: str) -> None:
        """Do nothing: services do not have to be connected."""

    def ending(self, container: str) -> ContainerExit:
        """Return how a container ended."""
        record = self._record(container)
        if record is None:
            raise EngineError(f"Kubernetes says: No such container: {container}")
        pod = self._pods_by_owner().get(_uid(record))
        life = plan.life_of(record, pod, self._nodes())
        limits = pod["spec"]["containers"][0].get("resources", {}).get("limits", {}) if pod else {}
        return ContainerExit(life.exit_code, life.out_of_memory, life.trouble, int(limits.get("memory", 0)))

    def events(self, since: int, until: int) -> Iterator[object]:
        """Yield the names of Pods as they change, until the given time."""
        yield from self._api.changes(self._ours(container_spec.CONTAINER_LABEL), until - time.time())

    # Containers.

    def create(self, spec: ContainerSpec, files: Mapping[str, bytes]) -> str:
        """Create a record and a Secret, and return the container's id."""
        network, name = spec.network, spec.name
        if network and self._api.read("Service", plan.object_name(network)) is None:
            raise EngineError(f"network {network}: its Service was removed outside of Heronry; it is created again")
        takers = plan.takers(self._nodes(), dict(self._placing.selector)) if spec.spread else 0
        try:
            record = self._api.create(plan.record_of(spec, files, self._placing, takers))
        except KubernetesRequestError as error:
            if error.code != CONFLICT:
                raise
            raise EngineError(f"Kubernetes says: Conflict. There is a ConfigMap {name} already") from error
        try:
            secret = plan.owned_by(record, plan.secret_of(spec, files, self._placing))
            self._make(secret)
        except EngineError:
            self._api.delete("ConfigMap", name, _uid(record))
            raise
        return f"{name}/{_uid(record)}"

    def _make(self, body: Mapping[str, Any]) -> None:
        """Create an object, replacing one that an earlier life has left under its name."""
        kind, name = body["kind"], body["metadata"]["name"]
        for _ in range(REPLACES):
            try:
                self._api.create(body)
                return
            except KubernetesRequestError as error:
                if error.code != CONFLICT:
                    raise
            existing = self._api.read(kind, name)
            if existing is not None and _owners(existing) == _owners(body):
                return  # the answer to an earlier request was lost
            if existing is not None:
                self._remove_object(kind, name, _uid(existing))
        raise EngineError(f"another client keeps creating the {kind} {name}: check what else uses this namespace")

    def start(self, container: str) -> int:
        """Create the Pod. ``containers`` shows its progress."""
        record = self._record(container)
        if record is None:
            raise EngineError(f"Kubernetes says: No such container: {container}")
        self._make(plan.owned_by(record, plan.pod_in(record)))
        self._api.mark("ConfigMap", record["metadata"]["name"], _uid(record), plan.STARTED_LABEL)
        return 0

    def signal(self, container: str, name: str) -> None:
        """Delete the Pod: its node sends SIGTERM, and SIGKILL after the grace time (1 second unless SIGTERM)."""
        if (pod := self._pod(container)) is not None:
            grace = None if name == "SIGTERM" else 1  # 0 would remove the Pod object even if its processes still run
            self._api.delete("Pod", pod["metadata"]["name"], _uid(pod), grace)

    def remove(self, container: str) -> None:
        """Remove the Pod, the Secret and the record of a container (id or name).

        Raises:
            EngineError: The Pod still exists after ``GONE_SECONDS``.
        """
        record = self._record(container)
        if record is None:
            return
        if (pod := self._pod(container)) is not None:
            nodes = self._nodes()
            life = plan.life_of(record, pod, nodes)
            # A Pod that has ended, or whose node is lost, only needs to be removed from the API.
            self._remove_object("Pod", pod["metadata"]["name"], _uid(pod), 0 if life.state == "exited" else 1)
        name = record["metadata"]["name"]
        self._api.delete("Secret", name)
        self._api.delete("ConfigMap", name, _uid(record))

    def _remove_object(self, kind: str, name: str, uid: str, grace_seconds: int | None = None) -> None:
        self._api.delete(kind, name, uid, grace_seconds)
        deadline = time.monotonic() + GONE_SECONDS
        while (existing := self._api.read(kind, name)) is not None and _uid(existing) == uid:
            if time.monotonic() > deadline:
                raise EngineError(
                    f"{kind} {name} still goes after {GONE_SECONDS:g} s: see kubectl describe; tried again"
                )
            time.sleep(LOOK_SECONDS)

    def _record(self, container: str) -> dict[str, Any] | None:
        """Return the record of a container (id or name), or None."""
        name, _, uid = container.partition("/")
        config_map = self._api.read("ConfigMap", name)
        if (
            config_map is None
            or (uid and uid != _uid(config_map))
            or plan.RECORD_LABEL not in config_map["metadata"].get("labels", {})
        ):
            return None
        return config_map

    def _pod(self, container: str) -> dict[str, Any] | None:
        name, _, uid = container.partition("/")
        pod = self._api.read("Pod", name)
        return pod if pod is not None and (not uid or uid in _owners(pod)) else None

    # Networks and volumes.

    def networks(self) -> dict[str, TopologyOwner]:
        """Return the owner of each topology's network by name."""
        return self._named("Service", plan.NETWORK_NOTE)

    def volumes(self) -> dict[str, TopologyOwner]:
        """Return the owner of each topology's Secrets, records and folder of the shared storage, by volume name."""
        objects = self._named("Secret", plan.VOLUME_NOTE) | self._named("ConfigMap", plan.VOLUME_NOTE)
        return objects | (self._storage.owners() if self._storage is not None else {})

    def _named(self, kind: str, note: str) -> dict[str, TopologyOwner]:
        by_name = {}
        for entry in self._api.list(kind, self._ours(container_spec.TOPOLOGY_ID_LABEL)):
            if name := (entry["metadata"].get("annotations") or {}).get(note):
                by_name[name] = TopologyOwner(*plan.topology_of(entry))
        return by_name

    def make_network(self, name: str, labels: Mapping[str, str], *, internal: bool = True) -> None:
        """Create the Service and the NetworkPolicy, unless they exist."""
        for body in (
            plan.service(name, labels, self._placing.namespace),
            plan.policy(name, labels, self._placing, internal=internal),
        ):
            try:
                self._api.create(body)
            except KubernetesRequestError as error:
                if error.code != CONFLICT:
                    raise

    def expect(self, network: str, labels: Mapping[str, str], containers: int) -> None:
        """Set the PodDisruptionBudget for this number of containers, which tools that drain nodes respect."""
        version = f"policy/{self._api.policy_version()}"
        body = plan.disruption(network, labels, self._placing.namespace, containers, version)
        for _ in range(REPLACES):
            existing = self._api.read(body["kind"], body["metadata"]["name"])
            try:
                if existing is None:
                    self._api.create(body)
                elif existing["spec"].get("minAvailable") != body["spec"]["minAvailable"]:
                    self._api.replace({**existing, "spec": body["spec"]})
                return
            except KubernetesRequestError as error:
                if error.code != CONFLICT:
                    raise
        raise EngineError(f"another client keeps changing the PodDisruptionBudget {body['metadata']['name']}")

    def remove_network(self, name: str) -> None:
        """Remove the network's objects, the Service last: as long as it exists, ``networks`` lists the network."""
        for kind in ("PodDisruptionBudget", "NetworkPolicy", "Service"):
            self._api.delete(kind, plan.object_name(name))

    def make_volume(self, name: str, labels: Mapping[str, str]) -> None:
        """Create a folder of the shared storage, if it is configured.

        Secrets and records are created with each container.
        """
        if self._storage is not None:
            self._storage.make(name, labels)

    def remove_volume(self, name: str) -> None:
        """Remove the Secrets, records and folder of a topology."""
        for kind in ("Secret", "ConfigMap"):
            for entry in self._api.list(kind, self._ours(container_spec.TOPOLOGY_ID_LABEL)):
                if (entry["metadata"].get("annotations") or {}).get(plan.VOLUME_NOTE) == name:
                    self._api.delete(kind, entry["metadata"]["name"], _uid(entry))
        if self._storage is not None:
            try:
                self._storage.remove(name)
            except PermissionError as error:
                raise EngineError(f"{self._storage.folder / name} cannot be removed: {error}") from error

    def close(self) -> None:
        """Close the connections to the cluster."""
        self._api.close()

    def _ours(self, label: str) -> str:
        """Return the selector of this cluster's objects that have this label."""
        return f"{plan.selector({container_spec.CLUSTER_LABEL: self.project})},{label}"


def _uid(document: Mapping[str, Any]) -> str:
    return str(document["metadata"]["uid"])


def _owners(document: Mapping[str, Any]) -> set[str]:
    return {owner["uid"] for owner in document["metadata"].get("ownerReferences") or ()}


def _seen(record: Mapping[str, Any], life: ObservedState) -> EngineContainer:
    metadata = record["metadata"]
    network = metadata["annotations"].get(plan.NETWORK_NOTE, "")
    return EngineContainer(
        f"{metadata['name']}/{metadata['uid']}",
        metadata["name"],
        *plan.topology_of(record),
        int(metadata["labels"][container_spec.CONTAINER_LABEL]),
        life.state,
        (network,) if network else (),
        life.trouble,
    )
