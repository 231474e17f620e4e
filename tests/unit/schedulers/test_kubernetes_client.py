"""Kubernetes client against an API server that is overloaded, unavailable or rejects requests.

The server is a local one that answers as a real one does; tests of a real cluster are in ``tests/k8s``.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from heron_cli.diagnosis.kubernetes import (
    OPERATOR_RIGHTS,
    SCHEDULER_RIGHTS,
    collect_kubernetes_facts,
    judge_cluster,
    judge_kubernetes,
)
from heron_control.schedulers.engine import EngineError
from heron_control.schedulers.kubernetes_client import CONFLICT, KubernetesClient, KubernetesRequestError

PODS = "/api/v1/namespaces/heronry/pods"
FORBIDDEN = {"kind": "Status", "code": 403, "message": 'nodes is forbidden: User "x" cannot list resource "nodes"'}


class Answers:
    """Scripted answers of the server (the last one repeats) and the requests it received."""

    def __init__(self) -> None:
        self.given: list[tuple[int, Any, dict[str, str]]] = []
        self.asked: list[tuple[str, str, Any]] = []

    def say(self, code: int, body: Any, **headers: str) -> None:
        """Add an answer; a list is a stream of lines."""
        self.given.append((code, body, headers))

    def next(self) -> tuple[int, Any, dict[str, str]]:
        """Return the answer to the next request."""
        return self.given.pop(0) if len(self.given) > 1 else self.given[0]


@pytest.fixture
def server() -> Iterator[tuple[str, Answers]]:
    answers = Answers()

    class Handler(BaseHTTPRequestHandler):
        """Handler of one request."""

        def answer(self) -> None:
            sent = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            answers.asked.append((self.command, self.path, json.loads(sent) if sent else None))
            code, body, headers = answers.next()
            lines = body if isinstance(body, list) else [body]
            content = b"".join(json.dumps(line).encode() + b"\n" for line in lines)
            self.send_response(code)
            for name, value in {**headers, "Content-Length": str(len(content))}.items():
                self.send_header(name.replace("_", "-"), value)
            self.end_headers()
            self.wfile.write(content)

        do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = answer

        def log_message(self, *_: object) -> None:
            """Suppress the log."""

    made = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=made.serve_forever, args=(0.01,))
    thread.start()
    yield f"http://127.0.0.1:{made.server_port}", answers
    made.shutdown()
    thread.join()
    made.server_close()


@pytest.fixture
def asked(server: tuple[str, Answers]) -> Iterator[tuple[KubernetesClient, Answers]]:
    client = KubernetesClient("heronry", server[0])
    yield client, server[1]
    client.close()


def test_overloaded_server_is_retried(asked: tuple[KubernetesClient, Answers]) -> None:
    client, answers = asked
    answers.say(429, {"message": "too many requests"}, Retry_After="0")
    answers.say(429, {"message": "too many requests"}, Retry_After="0")
    answers.say(201, {"kind": "Pod", "metadata": {"name": "a", "uid": "1"}})
    assert client.create({"kind": "Pod", "metadata": {"name": "a"}})["metadata"]["uid"] == "1"
    assert [method for method, _, _ in answers.asked] == ["POST"] * 3


def test_persistent_overload_is_an_error_with_its_message(asked: tuple[KubernetesClient, Answers]) -> None:
    client, answers = asked
    answers.say(429, {"message": "the server is currently unable"}, Retry_After="0")
    with pytest.raises(EngineError, match="currently unable"):
        client.list("Pod", "a=b")


def test_unreachable_server_is_an_error_at_once() -> None:
    client = KubernetesClient("heronry", "http://127.0.0.1:9")
    with pytest.raises(EngineError, match=r"API server at http://127\.0\.0\.1:9 does not answer: connection refused"):
        client.list("Pod", "a=b")
    client.close()


def test_existing_object_is_refused_with_its_code(asked: tuple[KubernetesClient, Answers]) -> None:
    client, answers = asked
    answers.say(409, {"kind": "Status", "code": 409, "message": 'pods "a" already exists'})
    with pytest.raises(KubernetesRequestError, match='pods "a" already exists') as caught:
        client.create({"kind": "Pod", "metadata": {"name": "a"}})
    assert caught.value.code == CONFLICT


def test_missing_object_is_not_an_error(asked: tuple[KubernetesClient, Answers]) -> None:
    client, answers = asked
    answers.say(404, {"kind": "Status", "code": 404, "message": "not found"})
    assert client.read("Pod", "a") is None
    assert not client.delete("Pod", "a")


def test_delete_applies_only_to_the_given_uid(asked: tuple[KubernetesClient, Answers]) -> None:
    client, answers = asked
    answers.say(409, {"kind": "Status", "code": 409, "message": "the UID in the precondition does not match"})
    assert not client.delete("Pod", "a", "1", 0)
    (_, path, sent) = answers.asked[0]
    assert (path, sent["preconditions"], sent["gracePeriodSeconds"]) == (f"{PODS}/a", {"uid": "1"}, 0)
    with pytest.raises(KubernetesRequestError):
        client.delete("Pod", "a")


def test_mark_applies_only_to_the_given_uid(asked: tuple[KubernetesClient, Answers]) -> None:
    client, answers = asked
    answers.say(200, {})
    client.mark("ConfigMap", "a", "1", "org.heronry/started")
    assert answers.asked[0][2] == [
        {"op": "test", "path": "/metadata/uid", "value": "1"},
        {"op": "add", "path": "/metadata/labels/org.heronry~1started", "value": "1"},
    ]


def test_forbidden_node_list_yields_none(asked: tuple[KubernetesClient, Answers]) -> None:
    client, answers = asked
    answers.say(403, FORBIDDEN)
    assert client.nodes() is None
    with pytest.raises(
        KubernetesRequestError, match=r"give the api server's account the rights in deploy/kubernetes\.yml"
    ):
        client.list("Pod", "")


def test_watch_starts_at_the_list_and_ends_with_its_history(
    asked: tuple[KubernetesClient, Answers],
) -> None:
    client, answers = asked
    pod = {"metadata": {"name": "a"}}
    gone = {"type": "ERROR", "object": {"kind": "Status", "code": 410, "message": "too old resource version"}}
    answers.say(200, {"metadata": {"resourceVersion": "77"}, "items": []})
    answers.say(200, [{"type": "MODIFIED", "object": pod}, gone])
    assert list(client.changes("a=b", 5)) == ["a"]
    assert "resourceVersion=77" in answers.asked[1][1]
    broken = {"type": "ERROR", "object": {"kind": "Status", "code": 500, "message": "etcd is away"}}
    answers.given = [(200, {"metadata": {"resourceVersion": "78"}}, {}), (200, [broken], {})]
    with pytest.raises(KubernetesRequestError, match="etcd is away"):
        list(client.changes("a=b", 5))


def test_newest_served_policy_version_is_used(asked: tuple[KubernetesClient, Answers]) -> None:
    client, answers = asked
    answers.say(200, {"versions": [{"version": "v1beta1"}]})
    assert client.policy_version() == "v1beta1"
    answers.given = [(404, {"message": "not found"}, {})]
    client.read("PodDisruptionBudget", "n")
    assert answers.asked[-1][1] == "/apis/policy/v1beta1/namespaces/heronry/poddisruptionbudgets/n"


def test_missing_cluster_is_reported_with_a_remedy(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "nothing"))
    with pytest.raises(EngineError, match=r"no Kubernetes cluster is configured: .* or set KUBECONFIG"):
        KubernetesClient("heronry")


def use(monkeypatch: pytest.MonkeyPatch, folder: Path, address: str) -> None:
    """Write a kubeconfig for this server."""
    file = folder / "config"
    file.write_text(json.dumps({
        "apiVersion": "v1", "kind": "Config", "current-context": "c", "users": [{"name": "u", "user": {}}],
        "clusters": [{"name": "k", "cluster": {"server": address}}],
        "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u"}}],
    }))  # fmt: skip
    monkeypatch.setenv("KUBECONFIG", str(file))


def brief() -> tuple[str, str]:
    """Return verdict and text of the check of ``heron doctor``."""
    found = judge_cluster(collect_kubernetes_facts(complete=False))
    return found.verdict.value, f"{found.found} {found.cure}"


def test_doctor_checks_the_cluster(
    server: tuple[str, Answers], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    address, answers = server
    version, policy = {"gitVersion": "v1.30.1"}, {"versions": [{"version": "v1"}]}
    use(monkeypatch, tmp_path, address)
    answers.given = [(200, {"items": []}, {}), (200, version, {}), (200, policy, {})]
    assert brief() == ("good", "v1.30.1, 0 nodes, policy/v1 ")
    answers.given = [(403, FORBIDDEN, {}), (200, version, {}), (200, policy, {})]
    verdict, words = brief()
    assert verdict == "note"
    assert "allow `list nodes`" in words
    use(monkeypatch, tmp_path, "http://127.0.0.1:9")
    assert "connection refused" in brief()[1]
    (tmp_path / "config").unlink()
    assert "no cluster is configured here" in brief()[1]


def test_doctor_checks_rights_and_shared_storage(
    server: tuple[str, Answers], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    address, answers = server
    use(monkeypatch, tmp_path, address)
    monkeypatch.setenv("HERONRY_K8S_CLAIM", "shared")
    wanted = SCHEDULER_RIGHTS + OPERATOR_RIGHTS
    allowed, denied = (200, {"status": {"allowed": True}}, {}), (201, {"status": {"allowed": False}}, {})
    answers.given = [
        (200, {"items": []}, {}), (200, {"gitVersion": "v1.30.1"}, {}), (200, {"versions": [{"version": "v1"}]}, {}),
        denied, *[allowed for _ in wanted[1:]],
        (403, FORBIDDEN, {}), (200, {"spec": {"accessModes": ["ReadWriteMany"]}}, {}),
    ]  # fmt: skip
    found = {one.check: one for one in judge_kubernetes(collect_kubernetes_facts())}
    assert found["rights of the scheduler"].found == "in heronry this account may not get pods"
    assert found["rights to set up"].verdict.value == "good"
    assert found["shared storage"].verdict.value == "good"
    assert "volumes" not in found  # objects that may not be seen are not judged
    asked = [body["spec"]["resourceAttributes"] for method, _, body in answers.asked if method == "POST"]
    assert len(asked) == len(wanted)
    assert asked[0] == {"verb": "get", "group": "", "resource": "pods", "subresource": "", "namespace": "heronry"}
    assert {"verb": "create", "group": "", "resource": "namespaces", "subresource": ""} in asked
    assert any(one["resource"] == "pods" and one["subresource"] == "portforward" for one in asked)
