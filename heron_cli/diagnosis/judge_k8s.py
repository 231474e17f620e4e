"""What the scheduler ``k8s`` and ``deploy/kubernetes.yml`` need of a Kubernetes cluster
(docs/how-to/deploy/kubernetes.md): findings of facts that ``look_k8s`` has gathered.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from heron_cli.diagnosis.findings import Finding, bad, cure_for, good, note, numbers, some

ENGINE = "Kubernetes"
VERSION_NEEDED = (1, 20)
DEFAULT_CLASS = "storageclass.kubernetes.io/is-default-class"
_RBAC, _NETWORK, _POLICY, _APPS = "rbac.authorization.k8s.io", "networking.k8s.io", "policy", "apps"
_CURES = {
    "no cluster is known": "set KUBECONFIG to the file of a cluster, or type this in a Pod of one.",
    "not installed": "pip install 'heronry[kubernetes]'.",
    "no answer in time": "kubectl cluster-info: does its API server run, and is the way there open?",
    "nobody listens": "kubectl cluster-info: is it the right context (kubectl config get-contexts)?",
    "unauthorized": "kubectl auth whoami; log in anew.",
    "certificate": "kubectl cluster-info; the kubeconfig's authority is not the cluster's.",
}


class Right(NamedTuple):
    """What somebody may do: in the namespace, or ``everywhere``."""

    verb: str
    resource: str
    group: str = ""
    everywhere: bool = False


def _rights(group: str, resources: str, verbs: str, *, everywhere: bool = False) -> tuple[Right, ...]:
    return tuple(Right(verb, resource, group, everywhere) for resource in resources.split() for verb in verbs.split())


#: The Role and the ClusterRole of the api server in deploy/kubernetes.yml; a test holds them to it.
SCHEDULER_RIGHTS = (
    *_rights("", "pods", "get list watch create delete"),
    *_rights("", "configmaps", "get list create delete patch"),
    *_rights("", "secrets services", "get list create delete"),
    *_rights(_NETWORK, "networkpolicies", "create delete"),
    *_rights(_POLICY, "poddisruptionbudgets", "get create update delete"),
)
#: What ``kubectl apply`` of it and the guide's other lines do beside: whoever makes a role must have its rights, too.
OPERATOR_RIGHTS = (
    *_rights("", "namespaces", "create", everywhere=True),
    *_rights(_RBAC, "clusterroles clusterrolebindings", "create", everywhere=True),
    *_rights(_RBAC, "roles rolebindings", "create"),
    *_rights("", "serviceaccounts persistentvolumeclaims", "create"),
    *_rights(_APPS, "statefulsets", "create"),
    *_rights("", "pods/exec pods/portforward", "create"),
)


class Claim(NamedTuple):
    """The shared PersistentVolumeClaim that is named: its access modes, None if it is not there."""

    name: str
    modes: tuple[str, ...] | None


@dataclass(frozen=True, slots=True)
class K8sFacts:
    """``nodes``: as Kubernetes' objects, None where they are not ours to see; ``rights``: of those that were asked;
    ``classes``: as objects, None where not ours to see. ``inside``: asked from a Pod, with the api server's account."""

    trouble: str = ""
    version: str = ""
    policy: str = ""
    nodes: tuple[Mapping[str, Any], ...] | None = None
    namespace: str = "heronry"
    inside: bool = False
    kubectl: bool = True
    rights: Mapping[Right, bool] | None = None
    classes: tuple[Mapping[str, Any], ...] | None = None
    image: str = "heronry:latest"
    claim: Claim | None = None


def cluster(facts: K8sFacts) -> Finding:
    """Whether there is a cluster that answers, and which."""
    if facts.trouble:
        return bad(ENGINE, facts.trouble, cure_for(facts.trouble, _CURES, "kubectl cluster-info."))
    seen = f"{len(facts.nodes)} nodes" if facts.nodes is not None else "its nodes are not ours to see"
    text = f"{facts.version}, {seen}, policy/{facts.policy}"
    if numbers(facts.version) < VERSION_NEEDED:
        return bad(ENGINE, f"{text}: too old", "Use Kubernetes 1.20 or newer.")
    if facts.nodes is None:
        return note(ENGINE, text, "What a lost node ran is not replaced: allow `list nodes` (deploy/kubernetes.yml).")
    return good(ENGINE, text)


def k8s_findings(facts: K8sFacts) -> Iterator[Finding]:
    """Everything; a cluster that does not answer is one finding."""
    if not facts.inside and not facts.kubectl:
        yield note("kubectl", "there is none", "Who sets Heronry up needs it: https://kubernetes.io/docs/tasks/tools/")
    yield cluster(facts)
    if facts.trouble:
        return
    if facts.nodes is not None:
        yield from _nodes(facts.nodes)
        yield from _image(facts)
    yield from _may(facts)
    yield from _volumes(facts)


def _nodes(nodes: tuple[Mapping[str, Any], ...]) -> Iterator[Finding]:
    ready = [node for node in nodes if takes_pods(node)]
    text = f"{len(ready)} of {len(nodes)} take Pods"
    if not ready:
        yield bad("nodes", text, "kubectl get nodes; kubectl uncordon NODE; kubectl describe node NODE.")
    elif len(ready) < len(nodes):
        others = some(node["metadata"]["name"] for node in nodes if node not in ready)
        yield note("nodes", f"{text}, not {others}", "kubectl describe node NODE; kubectl uncordon NODE.")
    else:
        yield good("nodes", text)


def takes_pods(node: Mapping[str, Any]) -> bool:
    """Ready, and closed to no Pod that tolerates nothing."""
    conditions = {one["type"]: one["status"] for one in node.get("status", {}).get("conditions", ())}
    spec = node.get("spec", {})
    closed = any(taint.get("effect") in ("NoSchedule", "NoExecute") for taint in spec.get("taints") or ())
    return conditions.get("Ready") == "True" and not spec.get("unschedulable") and not closed


def _image(facts: K8sFacts) -> Iterator[Finding]:
    """A kubelet tells of fifty images; a name with a registry's host in it is fetched."""
    if "/" in facts.image:
        return
    lacking = [
        node["metadata"]["name"]
        for node in facts.nodes or ()
        if takes_pods(node)
        and not any(name.endswith(f"/{facts.image}") or name == facts.image for name in _names(node))
    ]
    if lacking:
        cure = f"docker save {facts.image} | ssh NODE ctr -n k8s.io images import -, or a registry in HERONRY_IMAGE."
        yield note("image", f"{facts.image} is not known to be on {some(lacking)}", cure)
    else:
        yield good("image", f"{facts.image} is on every node")


def _names(node: Mapping[str, Any]) -> list[str]:
    return [name for image in node.get("status", {}).get("images", ()) for name in image.get("names") or ()]


def _may(facts: K8sFacts) -> Iterator[Finding]:
    if facts.rights is None:
        return
    groups: tuple[tuple[str, tuple[Right, ...], str], ...] = (
        ("rights of the scheduler", SCHEDULER_RIGHTS, "kubectl apply -f deploy/kubernetes.yml, as an administrator."),
        ("rights to set up", () if facts.inside else OPERATOR_RIGHTS, "Have an administrator apply it."),
    )
    for check, wanted, cure in groups:
        refused = [right for right in wanted if not facts.rights.get(right, False)]
        if refused:
            said = some(f"{right.verb} {right.resource}" for right in refused)
            yield bad(check, f"in {facts.namespace} this account may not {said}", cure)
        elif wanted:
            yield good(check, f"all {len(wanted)} in {facts.namespace}")


def _volumes(facts: K8sFacts) -> Iterator[Finding]:
    if facts.classes is not None:
        defaults = [
            one["metadata"]["name"]
            for one in facts.classes
            if (one["metadata"].get("annotations") or {}).get(DEFAULT_CLASS) == "true"
        ]
        if defaults:
            yield good("volumes", f"by the storage class {some(defaults)}")
        else:
            cure = "Install a provisioner, or make two PersistentVolumes (10 and 5 GiB) by hand."
            yield note("volumes", "no storage class is the default", cure)
    if facts.claim is None:
        cure = "If topologies shall keep state: make a claim, and apply deploy/kubernetes-storage.yml."
        yield note("shared storage", "no claim is named: EFFECTIVELY_ONCE is refused", cure)
        return
    name, modes = facts.claim
    if modes is None:
        yield bad("shared storage", f"there is no claim {name}", f"kubectl -n {facts.namespace} get pvc.")
    elif "ReadWriteMany" not in modes:
        cure = "Make it with access mode ReadWriteMany."
        yield bad("shared storage", f"the claim {name} is {some(modes)}: one node alone can mount it", cure)
    else:
        yield good("shared storage", f"the claim {name} is ReadWriteMany")
