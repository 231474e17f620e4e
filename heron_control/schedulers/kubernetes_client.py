"""Requests to a Kubernetes API server through its official client, in plain values.

Objects are dicts, as in manifests. Errors name cause and remedy. If the API server is overloaded (429), the request is
retried after the time that the server asks for. If the server is unavailable, the request fails at once, since the
scheduler's watch retries anyway. Answers such as "already exists" or "not found" raise
``KubernetesRequestError`` with the HTTP status code.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, cast

import urllib3
from kubernetes import client, config
from kubernetes.client.exceptions import ApiException

from heron_control.schedulers.engine import EngineError

CONNECT_SECONDS, ANSWER_SECONDS = 5.0, 30.0
LADEN_ATTEMPTS = 5
NAMESPACE_FILE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
NOT_FOUND, CONFLICT, GONE = 404, 409, 410
_PATHS = {
    "ConfigMap": ("api/v1", "configmaps"),
    "Secret": ("api/v1", "secrets"),
    "Service": ("api/v1", "services"),
    "Pod": ("api/v1", "pods"),
    "NetworkPolicy": ("apis/networking.k8s.io/v1", "networkpolicies"),
    "PodDisruptionBudget": ("apis/policy/{policy}", "poddisruptionbudgets"),
}
_CURES = (
    ("exceeded quota", "raise the quota of the namespace, or request less"),
    ("is forbidden: User", "give the api server's account the rights in deploy/kubernetes.yml"),
    (
        "violates PodSecurity",
        "the namespace allows less than the level restricted: see docs/how-to/deploy/kubernetes.md",
    ),
    ("Unauthorized", "the credential has expired: log in again, or check the account's token"),
)


class KubernetesRequestError(EngineError):
    """The API server has refused a request. ``code`` is the HTTP status code."""

    def __init__(self, code: int, said: str) -> None:
        cure = next((f"; {cure}" for sign, cure in _CURES if sign in said), "")
        super().__init__(f"Kubernetes says: {said}{cure}")
        self.code = code


def own_namespace() -> str:
    """Return the namespace of the Pod in which this process runs, or ``default`` outside of a Pod."""
    with suppress(OSError):
        return NAMESPACE_FILE.read_text().strip() or "default"
    return "default"


class KubernetesClient:
    """Client for one namespace of a cluster: the one in which this process runs, or that of the user's kubeconfig.

    Thread-safe.
    """

    def __init__(self, namespace: str, address: str = "") -> None:
        """Load the configuration of the cluster.

        Args:
            namespace: Namespace of all objects.
            address: Address of an API server that is used without further configuration, for tests.

        Raises:
            EngineError: The configuration of a cluster is missing.
        """
        self.namespace = namespace
        self._policy = ""
        made = client.Configuration()
        if address:
            made.host = address
        else:
            try:
                if NAMESPACE_FILE.exists():
                    config.load_incluster_config(made)  # type: ignore[no-untyped-call]  # the client has few types
                else:
                    file = os.environ.get("KUBECONFIG") or None  # the client itself reads it only when it is imported
                    config.load_kube_config(file, client_configuration=made)  # type: ignore[no-untyped-call]  # the same
            except config.ConfigException as error:
                raise EngineError(
                    f"no Kubernetes cluster is configured: {error}; run the api server in one "
                    "(docs/how-to/deploy/kubernetes.md), or set KUBECONFIG"
                ) from error
        # Retry only temporary refusals (429); urllib3 respects the Retry-After header.
        made.retries = urllib3.Retry(
            total=LADEN_ATTEMPTS, connect=0, read=0, redirect=0, other=0, status=LADEN_ATTEMPTS,
            status_forcelist=[429], allowed_methods=None, backoff_factor=0.2, raise_on_status=False,
        )  # fmt: skip
        made.connection_pool_maxsize = 16
        self.address = made.host
        self._api = client.ApiClient(made)

    # Objects.

    def create(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """Create an object.

        Raises:
            Refused: The server refuses, with code CONFLICT if an object of that name exists.
        """
        return self._call("POST", self._path(body["kind"]), body=body)

    def replace(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """Replace an object that was read before.

        Raises:
            Refused: The server refuses, with code CONFLICT if the object has changed since.
        """
        return self._call("PUT", self._path(body["kind"], body["metadata"]["name"]), body=body)

    def read(self, kind: str, name: str) -> dict[str, Any] | None:
        """Return an object, or None if it does not exist."""
        with self._unless(NOT_FOUND):
            return self._call("GET", self._path(kind, name))
        return None

    def list(self, kind: str, labels: str) -> list[dict[str, Any]]:
        """Return the objects of a kind that match a label selector."""
        answer = self._call("GET", self._path(kind), query={"labelSelector": labels})
        return cast(list[dict[str, Any]], answer["items"])

    def mark(self, kind: str, name: str, uid: str, label: str) -> None:
        """Set a label to 1 on the object with this uid.

        Raises:
            Refused: The server refuses, for example because the uid differs.
        """
        self._call(
            "PATCH", self._path(kind, name),
            body=[
                {"op": "test", "path": "/metadata/uid", "value": uid},
                {"op": "add", "path": f"/metadata/labels/{label.replace('~', '~0').replace('/', '~1')}", "value": "1"},
            ],
        )  # fmt: skip

    def delete(self, kind: str, name: str, uid: str = "", grace_seconds: int | None = None) -> bool:
        """Delete an object, and return False if it does not exist.

        If a uid is given, an object with another uid is not deleted.
        """
        body: dict[str, Any] = {"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Background"}
        if uid:
            body["preconditions"] = {"uid": uid}
        if grace_seconds is not None:
            body["gracePeriodSeconds"] = grace_seconds
        with self._unless(NOT_FOUND, *((CONFLICT,) if uid else ())):
            self._call("DELETE", self._path(kind, name), body=body)
            return True
        return False

    def nodes(self) -> dict[str, dict[str, Any]] | None:
        """Return the nodes by name, or None if this account may not read them."""
        with self._unless(403):
            answer = self._call("GET", "/api/v1/nodes")
            return {node["metadata"]["name"]: node for node in answer["items"]}
        return None

    def changes(self, labels: str, seconds: float) -> Iterator[str]:
        """Yield the names of Pods as they change, for this many seconds.

        Ends early if the server no longer has the history (410).
        """
        limit = max(1, int(seconds))
        path = self._path("Pod")
        since = self._call("GET", path, query={"labelSelector": labels, "limit": "1"})["metadata"]["resourceVersion"]
        query = {"labelSelector": labels, "watch": "true", "resourceVersion": since, "timeoutSeconds": str(limit)}
        with self._unless(GONE), self._explained():
            answer = self._request("GET", path, query=query, seconds=limit + ANSWER_SECONDS).response
            try:
                for line in answer:
                    change = json.loads(line)
                    if change["type"] == "ERROR":
                        raise KubernetesRequestError(
                            int(change["object"].get("code", 0)), str(change["object"].get("message", ""))
                        )
                    yield str(change["object"]["metadata"].get("name", ""))
            finally:
                answer.close()

    def may(self, verb: str, resource: str, group: str = "", *, everywhere: bool = False) -> bool:
        """Return True if this account has a permission, as ``kubectl auth can-i`` does.

        Args:
            verb: For example ``create``.
            resource: For example ``pods`` or ``pods/exec``.
            group: API group of the resource.
            everywhere: Ask for all namespaces rather than for this one.
        """
        name, _, part = resource.partition("/")
        attributes = {"verb": verb, "group": group, "resource": name, "subresource": part}
        body = {
            "apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview",
            "spec": {"resourceAttributes": attributes if everywhere else {**attributes, "namespace": self.namespace}},
        }  # fmt: skip
        path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
        return bool(self._call("POST", path, body=body)["status"].get("allowed"))

    def ask(self, path: str) -> dict[str, Any] | None:
        """Return the content of a path of the API, or None if it does not exist or this account may not read it."""
        with self._unless(403, NOT_FOUND):
            return self._call("GET", path)
        return None

    def version(self) -> str:
        """Return the version of the cluster, for example v1.20.2."""
        return str(self._call("GET", "/version")["gitVersion"])

    def policy_version(self) -> str:
        """Return the newest version of the API group policy that the cluster serves.

        v1 was introduced with Kubernetes 1.21.
        """
        if not self._policy:
            versions = {one["version"] for one in self._call("GET", "/apis/policy")["versions"]}
            self._policy = "v1" if "v1" in versions else "v1beta1"
        return self._policy

    def close(self) -> None:
        """Close the connections."""
        self._api.rest_client.pool_manager.clear()

    # One request.

    def _path(self, kind: str, name: str = "") -> str:
        group, plural = _PATHS[kind]
        if "{policy}" in group:
            group = group.format(policy=self.policy_version())
        return f"/{group}/namespaces/{self.namespace}/{plural}" + (f"/{name}" if name else "")

    def _call(
        self, method: str, path: str, *, query: Mapping[str, str] | None = None, body: Any = None
    ) -> dict[str, Any]:
        with self._explained():
            answer: dict[str, Any] = json.loads(self._request(method, path, query=query, body=body).response.data)
            return answer

    def _request(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: Any = None,
        seconds: float = ANSWER_SECONDS,
    ) -> Any:
        """Return the answer, with its body unread.

        Raises:
            Refused: The status is not 2xx.
        """
        kind = "application/json-patch+json" if method == "PATCH" else "application/json"
        request = self._api.param_serialize(
            method, path, query_params=list((query or {}).items()), body=body, auth_settings=["BearerToken"],
            header_params={"Accept": "application/json", "Content-Type": kind},
        )  # fmt: skip
        answer = self._api.call_api(*request, _request_timeout=(CONNECT_SECONDS, seconds))
        if not 200 <= answer.status < 300:
            raise KubernetesRequestError(answer.status, _said(answer.response.data) or str(answer.reason))
        return answer

    @contextmanager
    def _unless(self, *codes: int) -> Iterator[None]:
        """Suppress ``KubernetesRequestError`` with one of these codes."""
        try:
            yield
        except KubernetesRequestError as error:
            if error.code not in codes:
                raise

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except (urllib3.exceptions.HTTPError, ApiException, OSError, ValueError) as error:
            raise EngineError(
                f"the Kubernetes API server at {self.address} does not answer: {_cause(error)}"
            ) from error


def _said(body: bytes) -> str:
    """Return the message of an unsuccessful answer."""
    try:
        return str(json.loads(body)["message"])
    except (ValueError, TypeError, KeyError):
        return body.decode(errors="replace")[:500].strip()


def _cause(error: Exception) -> str:
    said = str(error)
    for sign, cause in (
        ("refused", "connection refused"),
        ("timed out", "no answer in time"),
        ("unreach", "unreachable"),
    ):
        if sign in said.lower():
            return cause
    return said
