"""The facts for ``judge_k8s``: by the client that the scheduler uses, of the cluster of the kubeconfig or the Pod."""

from __future__ import annotations

import importlib.util
import os
import shutil
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from heron_cli.diagnosis.judge_k8s import OPERATOR_RIGHTS, SCHEDULER_RIGHTS, Claim, K8sFacts
from heron_control.schedulers.scheduler import SchedulerError

if TYPE_CHECKING:
    from heron_control.schedulers.k8s_client import KubernetesClient


def look(environment: Mapping[str, str] = os.environ, *, whole: bool = True) -> K8sFacts:
    """Not ``whole``: whether it answers, and its nodes."""
    if importlib.util.find_spec("kubernetes") is None:
        return K8sFacts(trouble="its client is not installed")
    from heron_control.schedulers.k8s_client import NAMESPACE_FILE, KubernetesClient, own_namespace  # an extra

    inside = NAMESPACE_FILE.exists()
    namespace = environment.get("HERONRY_K8S_NAMESPACE") or (own_namespace() if inside else "heronry")
    base = K8sFacts(
        namespace=namespace, inside=inside, kubectl=shutil.which("kubectl") is not None,
        image=environment.get("HERONRY_IMAGE") or "heronry:latest",
    )  # fmt: skip
    try:
        client = KubernetesClient(namespace)
    except SchedulerError as error:
        return replace(base, trouble=f"no cluster is known here: {error.__cause__}")
    try:
        nodes = client.nodes()
        found = replace(
            base, version=client.version(), policy=client.policy_version(),
            nodes=None if nodes is None else tuple(nodes.values()),
        )  # fmt: skip
        return _more(client, found, environment.get("HERONRY_K8S_CLAIM", "")) if whole else found
    except SchedulerError as error:
        return replace(base, trouble=str(error))
    finally:
        client.close()


def _more(client: KubernetesClient, found: K8sFacts, claim: str) -> K8sFacts:
    wanted = SCHEDULER_RIGHTS if found.inside else SCHEDULER_RIGHTS + OPERATOR_RIGHTS
    rights = {
        right: client.may(right.verb, right.resource, right.group, everywhere=right.everywhere) for right in wanted
    }
    classes = client.ask("/apis/storage.k8s.io/v1/storageclasses")
    return replace(
        found, rights=rights, classes=None if classes is None else tuple(classes["items"]),
        claim=_claim(client, claim) if claim else None,
    )  # fmt: skip


def _claim(client: KubernetesClient, name: str) -> Claim:
    body = client.ask(f"/api/v1/namespaces/{client.namespace}/persistentvolumeclaims/{name}")
    return Claim(name, None if body is None else tuple(body["spec"].get("accessModes", ())))
