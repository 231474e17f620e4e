"""Kubernetes as an engine of containers: see ``k8s_plan`` for what a container is on it.

A container's id is the name and the uid of its record, so that nobody takes one life for another. A Pod is made when
the container is started; it says itself when it has ended. What is asked to stop is deleted with its grace, and how it
ended is not known then. Where a node is lost, Kubernetes keeps the Pod until the node is back: the scheduler has it
removed all the same, and starts another.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator, Mapping
from typing import Any

from heron_control.schedulers import docker_plan
from heron_control.schedulers import k8s_answers as answers
from heron_control.schedulers import k8s_plan as plan
from heron_control.schedulers.engine import Ending, EngineError, Joiner, Owner, Seen
from heron_control.schedulers.k8s_client import CONFLICT, KubernetesClient, Refused
from heron_control.schedulers.k8s_plan import Placing
from heron_control.schedulers.shared_storage import OfNodes, SharedStorage

log = logging.getLogger(__name__)
GONE_SECONDS = 60.0
LOOK_SECONDS = 0.2
REPLACES = 5  # somebody else may change an object between a look and a change


class KubernetesEngine(OfNodes):
    """See ``heron_control.schedulers.engine.Engine``."""

    def __init__(self, project: str, placing: Placing, storage: SharedStorage | None = None) -> None:
        self.project = project
        self._placing = placing
        self._storage = storage
        self._api = KubernetesClient(placing.namespace)
        self._sight = answers.Sight()
        self._looking = threading.Lock()

    # Questions.

    def host(self, name: str, network: str) -> str:
        """In its topology's domain, which every Pod of the cluster can look up."""
        return plan.host_of(name, network, self._placing.namespace)

    def cores(self) -> float:
        """Of the largest node that is there; without bound where nobody may look."""
        nodes = self._nodes()
        if nodes is None:
            return float("inf")
        return max((node.cores for node in nodes.values() if not node.lost), default=0.01)

    def _nodes(self) -> dict[str, answers.Node] | None:
        found = self._api.nodes()
        if found is None:
            return None
        shown = {name: answers.node_of(node) for name, node in found.items()}
        with self._looking:
            before = self._sight
            self._sight, judged = before.look(shown, time.monotonic())
        for name in sorted(name for name, node in judged.items() if shown[name].lost and not node.lost):
            if name not in before.unknown:
                log.warning(
                    "node %s is not heard of since Kubernetes' API server was away (or since this process looks); what "
                    "runs there is replaced if that is so %g s after it is back", name, answers.GRACE_SECONDS,
                )  # fmt: skip
        return judged

    def require_image(self, image: str) -> None:
        """Whether nodes have it, or can fetch it, they say when they need it; here only whether the cluster answers."""
        self._api.list("ConfigMap", self._ours(docker_plan.TOPOLOGY_ID_LABEL))

    def containers(self) -> list[Seen]:
        """Every container of every topology of the cluster, whatever its state."""
        records = self._api.list("ConfigMap", self._ours(plan.RECORD_LABEL))
        pods = self._pods_by_owner()  # later: a record that has been started has its Pod there, unless it has gone
        nodes = self._nodes()
        return [_seen(record, answers.life_of(record, pods.get(_uid(record)), nodes)) for record in records]

    def _pods_by_owner(self) -> dict[str, dict[str, Any]]:
        """Uid of a record to its Pod."""
        found = self._api.list("Pod", self._ours(docker_plan.CONTAINER_LABEL))
        return {owner["uid"]: pod for pod in found for owner in pod["metadata"].get("ownerReferences") or ()}

    def joiners(self) -> list[Joiner]:
        """None: every Pod can be reached, and the topology's policy lets the cluster's services in."""
        return []

    def connect(self, joiner: Joiner, network: str) -> None:
        """Nobody has to."""

    def ending(self, container: str) -> Ending:
        """How it ended."""
        record = self._record(container)
        if record is None:
            raise EngineError(f"Kubernetes says: No such container: {container}")
        pod = self._pods_by_owner().get(_uid(record))
        life = answers.life_of(record, pod, self._nodes())
        limits = pod["spec"]["containers"][0].get("resources", {}).get("limits", {}) if pod else {}
        return Ending(life.exit_code, life.out_of_memory, life.trouble, int(limits.get("memory", 0)))

    def events(self, since: int, until: int) -> Iterator[object]:
        """What happens to Pods until then, as it happens."""
        yield from self._api.changes(self._ours(docker_plan.CONTAINER_LABEL), until - time.time())

    # Containers.

    def create(self, name: str, body: Mapping[str, Any], files: Mapping[str, bytes], folder: str) -> str:
        """A record and a Secret."""
        network = plan.network_of(body)
        if network and self._api.read("Service", plan.object_name(network)) is None:
            raise EngineError(f"the network {network} is not found: somebody has removed its Service; it is made anew")
        apart = docker_plan.APART_LABEL in body["Labels"]
        takers = answers.takers(self._nodes(), dict(self._placing.selector)) if apart else 0
        try:
            record = self._api.create(plan.record_of(name, body, files, folder, self._placing, takers))
        except Refused as error:
            if error.code != CONFLICT:
                raise
            raise EngineError(f"Kubernetes says: Conflict. There is a ConfigMap {name} already") from error
        try:
            secret = plan.owned_by(record, plan.secret_of(name, body, files, self._placing))
            self._make(secret)
        except EngineError:
            self._api.delete("ConfigMap", name, _uid(record))
            raise
        return f"{name}/{_uid(record)}"

    def _make(self, body: Mapping[str, Any]) -> None:
        """Make it in the place of what an earlier life has left under its name."""
        kind, name = body["kind"], body["metadata"]["name"]
        for _ in range(REPLACES):
            try:
                self._api.create(body)
                return
            except Refused as error:
                if error.code != CONFLICT:
                    raise
            found = self._api.read(kind, name)
            if found is not None and _owners(found) == _owners(body):
                return  # the answer to an earlier request was lost
            if found is not None:
                self._remove_object(kind, name, _uid(found))
        raise EngineError(f"somebody else makes a {kind} {name} again and again; what else uses this namespace?")

    def start(self, container: str) -> int:
        """Its Pod is made; what becomes of it is seen in ``containers``."""
        record = self._record(container)
        if record is None:
            raise EngineError(f"Kubernetes says: No such container: {container}")
        self._make(plan.owned_by(record, plan.pod_in(record)))
        self._api.mark("ConfigMap", record["metadata"]["name"], _uid(record), plan.STARTED_LABEL)
        return 0

    def signal(self, container: str, name: str) -> None:
        """Its Pod is deleted: its node sends SIGTERM, and SIGKILL when the grace is over, or at once."""
        if (pod := self._pod(container)) is not None:
            grace = None if name == "SIGTERM" else 1  # 0 would say that it is gone, whether it is or not
            self._api.delete("Pod", pod["metadata"]["name"], _uid(pod), grace)

    def remove(self, container: str) -> None:
        """Its Pod, its Secret, its record. Id or name. Raises EngineError if the Pod does not go."""
        record = self._record(container)
        if record is None:
            return
        if (pod := self._pod(container)) is not None:
            nodes = self._nodes()
            life = answers.life_of(record, pod, nodes)
            # What has ended, or cannot be asked, is only to be forgotten.
            self._remove_object("Pod", pod["metadata"]["name"], _uid(pod), 0 if life.state == "exited" else 1)
        name = record["metadata"]["name"]
        self._api.delete("Secret", name)
        self._api.delete("ConfigMap", name, _uid(record))

    def _remove_object(self, kind: str, name: str, uid: str, grace_seconds: int | None = None) -> None:
        self._api.delete(kind, name, uid, grace_seconds)
        deadline = time.monotonic() + GONE_SECONDS
        while (found := self._api.read(kind, name)) is not None and _uid(found) == uid:
            if time.monotonic() > deadline:
                raise EngineError(
                    f"{kind} {name} still goes after {GONE_SECONDS:g} s: see kubectl describe; tried again"
                )
            time.sleep(LOOK_SECONDS)

    def _record(self, container: str) -> dict[str, Any] | None:
        """By id or name."""
        name, _, uid = container.partition("/")
        found = self._api.read("ConfigMap", name)
        if (
            found is None
            or (uid and uid != _uid(found))
            or plan.RECORD_LABEL not in found["metadata"].get("labels", {})
        ):
            return None
        return found

    def _pod(self, container: str) -> dict[str, Any] | None:
        name, _, uid = container.partition("/")
        found = self._api.read("Pod", name)
        return found if found is not None and (not uid or uid in _owners(found)) else None

    # Networks, and what outlives containers.

    def networks(self) -> dict[str, Owner]:
        """Name of each network of a topology to its owner."""
        return self._named("Service", plan.NETWORK_NOTE)

    def volumes(self) -> dict[str, Owner]:
        """Whatever Secrets and records there are, and folders of the shared storage."""
        objects = self._named("Secret", plan.VOLUME_NOTE) | self._named("ConfigMap", plan.VOLUME_NOTE)
        return objects | (self._storage.owners() if self._storage is not None else {})

    def _named(self, kind: str, note: str) -> dict[str, Owner]:
        found = {}
        for entry in self._api.list(kind, self._ours(docker_plan.TOPOLOGY_ID_LABEL)):
            if name := (entry["metadata"].get("annotations") or {}).get(note):
                found[name] = Owner(*plan.topology_of(entry))
        return found

    def make_network(self, name: str, labels: Mapping[str, str], *, internal: bool = True) -> None:
        """Service and NetworkPolicy, unless they are there."""
        for body in (
            plan.service(name, labels, self._placing.namespace),
            plan.policy(name, labels, self._placing, internal=internal),
        ):
            try:
                self._api.create(body)
            except Refused as error:
                if error.code != CONFLICT:
                    raise

    def expect(self, network: str, labels: Mapping[str, str], containers: int) -> None:
        """So many containers the topology is to have: the budget of those who empty nodes."""
        version = f"policy/{self._api.policy_version()}"
        body = plan.disruption(network, labels, self._placing.namespace, containers, version)
        for _ in range(REPLACES):
            found = self._api.read(body["kind"], body["metadata"]["name"])
            try:
                if found is None:
                    self._api.create(body)
                elif found["spec"].get("minAvailable") != body["spec"]["minAvailable"]:
                    self._api.replace({**found, "spec": body["spec"]})
                return
            except Refused as error:
                if error.code != CONFLICT:
                    raise
        raise EngineError(f"somebody else changes the PodDisruptionBudget {body['metadata']['name']} again and again")

    def remove_network(self, name: str) -> None:
        """The Service last: as long as it is there, the rest is known."""
        for kind in ("PodDisruptionBudget", "NetworkPolicy", "Service"):
            self._api.delete(kind, plan.object_name(name))

    def make_volume(self, name: str, labels: Mapping[str, str]) -> None:
        """A folder of the shared storage, if there is one; Secrets and records come with each container."""
        if self._storage is not None:
            self._storage.make(name, labels)

    def remove_volume(self, name: str) -> None:
        """Secrets, records and folder of a topology."""
        for kind in ("Secret", "ConfigMap"):
            for entry in self._api.list(kind, self._ours(docker_plan.TOPOLOGY_ID_LABEL)):
                if (entry["metadata"].get("annotations") or {}).get(plan.VOLUME_NOTE) == name:
                    self._api.delete(kind, entry["metadata"]["name"], _uid(entry))
        if self._storage is not None:
            try:
                self._storage.remove(name)
            except PermissionError as error:
                raise EngineError(f"{self._storage.folder / name} cannot be removed: {error}") from error

    def close(self) -> None:
        """Let go of the cluster."""
        self._api.close()

    def _ours(self, label: str) -> str:
        """What lists this cluster's objects that have this label."""
        return f"{plan.selector({docker_plan.CLUSTER_LABEL: self.project})},{label}"


def _uid(found: Mapping[str, Any]) -> str:
    return str(found["metadata"]["uid"])


def _owners(found: Mapping[str, Any]) -> set[str]:
    return {owner["uid"] for owner in found["metadata"].get("ownerReferences") or ()}


def _seen(record: Mapping[str, Any], life: answers.Life) -> Seen:
    metadata = record["metadata"]
    network = metadata["annotations"].get(plan.NETWORK_NOTE, "")
    return Seen(
        f"{metadata['name']}/{metadata['uid']}",
        metadata["name"],
        *plan.topology_of(record),
        int(metadata["labels"][docker_plan.CONTAINER_LABEL]),
        life.state,
        (network,) if network else (),
        life.trouble,
    )
