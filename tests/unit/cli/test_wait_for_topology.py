"""Waiting for a topology on an unreliable cluster, and requests to an API server."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import typer

from heron_cli.application import report_errors
from heron_cli.clusters import ClusterAddress
from heron_cli.home import SavedLogin
from heron_cli.local_clusters import LocalCluster
from heron_cli.remote_cluster import RemoteCluster
from heron_cli.wait import TopologyStartTimeout, TopologyStateUnknown, wait_for_state
from heron_control.inspection.status_document import to_document
from heron_control.progress import silent
from tests.support.stub_processes import NAME, StubProcesses

ADDRESS = ClusterAddress("box", "me", "default")


@contextmanager
def serving(answers: list[tuple[int, dict[str, Any]]]) -> Iterator[RemoteCluster]:
    """Serve these answers, repeating the last one; yield the cluster."""

    class Handler(BaseHTTPRequestHandler):
        def answer(self) -> None:
            code, body = answers.pop(0) if len(answers) > 1 else answers[0]
            text = json.dumps(body).encode()
            self.send_response(code)
            self.send_header("content-length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        do_GET = answer

        def log_message(self, *_: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield RemoteCluster("box", SavedLogin(f"http://127.0.0.1:{server.server_port}", "box", "token"))
        finally:
            server.shutdown()


AWAY = (503, {"message": "the state store does not answer"})


def status_of(folder: Path) -> tuple[str, dict[str, Any]]:
    """Return the id and status of a topology without processes."""
    world = StubProcesses(folder)
    try:
        found = LocalCluster(world.home).status(ClusterAddress("local", "me"), NAME)
    finally:
        world.close()
    return found.execution.topology_id, to_document(found)


def wait(cluster: RemoteCluster, topology_id: str, secs: float, wanted: str) -> str:
    return wait_for_state(
        cluster, ADDRESS, NAME, topology_id, timeout_secs=secs, progress=silent, wanted=(wanted,)
    ).state


def test_failed_status_request_is_retried(tmp_path: Path) -> None:
    topology_id, document = status_of(tmp_path)
    with serving([AWAY, AWAY, (200, document)]) as cluster:
        assert wait(cluster, topology_id, 60.0, "failing") == "failing"


def test_cluster_timeout_leaves_the_topology_state_unknown() -> None:
    with (
        serving([AWAY]) as cluster,
        pytest.raises(TopologyStateUnknown, match="store does not answer") as caught,
    ):
        wait(cluster, "id", 0.0, "running")
    assert not isinstance(caught.value, TopologyStartTimeout)


def test_aborted_prompt_ends_the_command_without_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    def command() -> None:
        raise typer.Abort

    with pytest.raises(typer.Exit) as caught:
        report_errors(command)()
    assert caught.value.exit_code == 130
    assert "fault" not in capsys.readouterr().err
