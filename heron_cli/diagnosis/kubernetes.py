"""Requirements of Kubernetes clusters: the scheduler ``k8s`` and ``deploy/kubernetes.yml``.

``collect_kubernetes_facts`` asks the cluster of the kubeconfig or of the Pod with the client that the scheduler uses.
The functions ``judge_*`` turn these facts into findings. See docs/how-to/deploy/kubernetes.md.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

from heron_cli.diagnosis.findings import Finding, bad, cure_for, good, note, shorten, version_numbers
from heron_control.schedulers.scheduler import SchedulerError

if TYPE_CHECKING:
    from heron_control.schedulers.kubernetes_client import KubernetesClient

ENGINE = "Kubernetes"
VERSION_NEEDED = (1, 20)
DEFAULT_CLASS = "storageclass.kubernetes.io/is-default-class"
_RBAC, _NETWORK, _POLICY, _APPS = "rbac.authorization.k8s.io", "networking.k8s.io", "policy", "apps"
_CURES = {
    "no cluster is configured": "Set KUBECONFIG to the file of a cluster, or run this in a Pod of one.",
    "not installed": "pip install 'heronry[kubernetes]'.",
    "no answer in time": "Run kubectl cluster-info: check that its API server runs and is reachable.",
    "listens": "Run kubectl cluster-info: check the context (kubectl config get-contexts).",
    "unauthorized": "Run kubectl auth whoami, and log in again.",
    "certificate": "Run kubectl cluster-info: the authority in the kubeconfig is not that of the cluster.",
}


class KubernetesRight(NamedTuple):
    """A verb on a resource, in the namespace or ``everywhere``."""

    verb: str
    resource: str
    group: str = ""
    everywhere: bool = False


def _rights(group: str, resources: str, verbs: str, *, everywhere: bool = False) -> tuple[KubernetesRight, ...]:
    return tuple(
        KubernetesRight(verb, resource, group, everywhere) for resource in resources.split() for verb in verbs.split()
    )


#: The Role and the ClusterRole of the API server in deploy/kubernetes.yml; a test compares them.
SCHEDULER_RIGHTS = (
    *_rights("", "pods", "get list watch create delete"),
    *_rights("", "configmaps", "get list create delete patch"),
    *_rights("", "secrets services", "get list create delete"),
    *_rights(_NETWORK, "networkpolicies", "create delete"),
    *_rights(_POLICY, "poddisruptionbudgets", "get create update delete"),
)
#: Further rights for ``kubectl apply`` and the other commands of the guide: creating a role also needs its rights.
OPERATOR_RIGHTS = (
    *_rights("", "namespaces", "create", everywhere=True),
    *_rights(_RBAC, "clusterroles clusterrolebindings", "create", everywhere=True),
    *_rights(_RBAC, "roles rolebindings", "create"),
    *_rights("", "serviceaccounts persistentvolumeclaims", "create"),
    *_rights(_APPS, "statefulsets", "create"),
    *_rights("", "pods/exec pods/portforward", "create"),
)


class VolumeClaim(NamedTuple):
    """The shared PersistentVolumeClaim that is configured. `modes`: its access modes, None if it does not exist."""

    name: str
    modes: tuple[str, ...] | None


@dataclass(frozen=True, slots=True)
class KubernetesFacts:
    """Facts about a cluster.

    Attributes:
        trouble: Why the cluster does not answer.
        nodes: Kubernetes objects, None without the permission to list them.
        inside: Whether this process runs in a Pod, with the account of the API server.
        rights: The rights that were checked.
        classes: Storage classes as Kubernetes objects, None without the permission to list them.
    """

    trouble: str = ""
    version: str = ""
    policy: str = ""
    nodes: tuple[Mapping[str, Any], ...] | None = None
    namespace: str = "heronry"
    inside: bool = False
    kubectl: bool = True
    rights: Mapping[KubernetesRight, bool] | None = None
    classes: tuple[Mapping[str, Any], ...] | None = None
    image: str = "heronry:latest"
    claim: VolumeClaim | None = None


def judge_cluster(facts: KubernetesFacts) -> Finding:
    """Check that a cluster answers and is new enough."""
    if facts.trouble:
        return bad(ENGINE, facts.trouble, cure_for(facts.trouble, _CURES, "Run kubectl cluster-info."))
    seen = f"{len(facts.nodes)} nodes" if facts.nodes is not None else "no permission to list nodes"
    text = f"{facts.version}, {seen}, policy/{facts.policy}"
    if version_numbers(facts.version) < VERSION_NEEDED:
        return bad(ENGINE, f"{text}: too old", "Use Kubernetes 1.20 or newer.")
    if facts.nodes is None:
        return note(ENGINE, text, "Pods of a lost node are not replaced: allow `list nodes` (deploy/kubernetes.yml).")
    return good(ENGINE, text)


def judge_kubernetes(facts: KubernetesFacts) -> Iterator[Finding]:
    """Judge all facts. A cluster that does not answer is the only finding."""
    if not facts.inside and not facts.kubectl:
        yield note("kubectl", "not installed", "Needed to install Heronry: https://kubernetes.io/docs/tasks/tools/")
    yield judge_cluster(facts)
    if facts.trouble:
        return
    if facts.nodes is not None:
        yield from _judge_nodes(facts.nodes)
        yield from _judge_image(facts)
    yield from _judge_rights(facts)
    yield from _judge_volumes(facts)


def _judge_nodes(nodes: tuple[Mapping[str, Any], ...]) -> Iterator[Finding]:
    ready = [node for node in nodes if accepts_pods(node)]
    text = f"{len(ready)} of {len(nodes)} accept Pods"
    if not ready:
        yield bad("nodes", text, "Run kubectl get nodes, kubectl uncordon NODE or kubectl describe node NODE.")
    elif len(ready) < len(nodes):
        others = shorten(node["metadata"]["name"] for node in nodes if node not in ready)
        yield note("nodes", f"{text}, not {others}", "Run kubectl describe node NODE or kubectl uncordon NODE.")
    else:
        yield good("nodes", text)


def accepts_pods(node: Mapping[str, Any]) -> bool:
    """Return whether the node is ready for Pods without tolerations."""
    conditions = {one["type"]: one["status"] for one in node.get("status", {}).get("conditions", ())}
    spec = node.get("spec", {})
    closed = any(taint.get("effect") in ("NoSchedule", "NoExecute") for taint in spec.get("taints") or ())
    return conditions.get("Ready") == "True" and not spec.get("unschedulable") and not closed


def _judge_image(facts: KubernetesFacts) -> Iterator[Finding]:
    """Check that all nodes have the image. A name with a registry is fetched; a kubelet reports 50 images at most."""
    if "/" in facts.image:
        return
    lacking = [
        node["metadata"]["name"]
        for node in facts.nodes or ()
        if accepts_pods(node)
        and not any(name.endswith(f"/{facts.image}") or name == facts.image for name in _image_names(node))
    ]
    if lacking:
        cure = f"docker save {facts.image} | ssh NODE ctr -n k8s.io images import -, or set HERONRY_IMAGE."
        yield note("image", f"{facts.image} is not reported by {shorten(lacking)}", cure)
    else:
        yield good("image", f"{facts.image} is on every node")


def _image_names(node: Mapping[str, Any]) -> list[str]:
    return [name for image in node.get("status", {}).get("images", ()) for name in image.get("names") or ()]


def _judge_rights(facts: KubernetesFacts) -> Iterator[Finding]:
    if facts.rights is None:
        return
    groups: tuple[tuple[str, tuple[KubernetesRight, ...], str], ...] = (
        (
            "rights of the scheduler",
            SCHEDULER_RIGHTS,
            "Run kubectl apply -f deploy/kubernetes.yml as an administrator.",
        ),
        ("rights to set up", () if facts.inside else OPERATOR_RIGHTS, "Ask an administrator to apply it."),
    )
    for check, wanted, cure in groups:
        refused = [right for right in wanted if not facts.rights.get(right, False)]
        if refused:
            denied = shorten(f"{right.verb} {right.resource}" for right in refused)
            yield bad(check, f"in {facts.namespace} this account may not {denied}", cure)
        elif wanted:
            yield good(check, f"all {len(wanted)} in {facts.namespace}")


def _judge_volumes(facts: KubernetesFacts) -> Iterator[Finding]:
    if facts.classes is not None:
        defaults = [
            one["metadata"]["name"]
            for one in facts.classes
            if (one["metadata"].get("annotations") or {}).get(DEFAULT_CLASS) == "true"
        ]
        if defaults:
            yield good("volumes", f"storage class {shorten(defaults)}")
        else:
            cure = "Install a provisioner, or create two PersistentVolumes (10 and 5 GiB) manually."
            yield note("volumes", "no default storage class", cure)
    if facts.claim is None:
        cure = "For topologies that keep state: create a claim, and apply deploy/kubernetes-storage.yml."
        yield note("shared storage", "not configured: EFFECTIVELY_ONCE is rejected", cure)
        return
    name, modes = facts.claim
    if modes is None:
        yield bad("shared storage", f"claim {name} does not exist", f"Run kubectl -n {facts.namespace} get pvc.")
    elif "ReadWriteMany" not in modes:
        cure = "Create it with access mode ReadWriteMany."
        yield bad("shared storage", f"claim {name} is {shorten(modes)}: only one node can mount it", cure)
    else:
        yield good("shared storage", f"claim {name} is ReadWriteMany")


def collect_kubernetes_facts(environment: Mapping[str, str] = os.environ, *, complete: bool = True) -> KubernetesFacts:
    """Return facts about the cluster; unless `complete` only its version and nodes."""
    if importlib.util.find_spec("kubernetes") is None:
        return KubernetesFacts(trouble="the Kubernetes client is not installed")
    from heron_control.schedulers.kubernetes_client import (  # an optional dependency
        NAMESPACE_FILE,
        KubernetesClient,
        own_namespace,
    )

    inside = NAMESPACE_FILE.exists()
    namespace = environment.get("HERONRY_K8S_NAMESPACE") or (own_namespace() if inside else "heronry")
    base = KubernetesFacts(
        namespace=namespace, inside=inside, kubectl=shutil.which("kubectl") is not None,
        image=environment.get("HERONRY_IMAGE") or "heronry:latest",
    )  # fmt: skip
    try:
        client = KubernetesClient(namespace)
    except SchedulerError as error:
        return replace(base, trouble=f"no cluster is configured here: {error.__cause__}")
    try:
        nodes = client.nodes()
        facts = replace(
            base, version=client.version(), policy=client.policy_version(),
            nodes=None if nodes is None else tuple(nodes.values()),
        )  # fmt: skip
        return _collect_rights(client, facts, environment.get("HERONRY_K8S_CLAIM", "")) if complete else facts
    except SchedulerError as error:
        return replace(base, trouble=str(error))
    finally:
        client.close()


def _collect_rights(client: KubernetesClient, facts: KubernetesFacts, claim: str) -> KubernetesFacts:
    wanted = SCHEDULER_RIGHTS if facts.inside else SCHEDULER_RIGHTS + OPERATOR_RIGHTS
    rights = {
        right: client.may(right.verb, right.resource, right.group, everywhere=right.everywhere) for right in wanted
    }
    classes = client.ask("/apis/storage.k8s.io/v1/storageclasses")
    return replace(
        facts, rights=rights, classes=None if classes is None else tuple(classes["items"]),
        claim=_read_claim(client, claim) if claim else None,
    )  # fmt: skip


def _read_claim(client: KubernetesClient, name: str) -> VolumeClaim:
    body = client.ask(f"/api/v1/namespaces/{client.namespace}/persistentvolumeclaims/{name}")
    return VolumeClaim(name, None if body is None else tuple(body["spec"].get("accessModes", ())))
