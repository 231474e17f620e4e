"""Missing objects on an engine count as removed for any status; other errors do not.

The engine is a local server that answers like real ones: an engine with 404, the manager of a swarm also with 500
and 503.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from heron_control.schedulers.docker_engine import DockerEngine
from heron_control.schedulers.engine import EngineError
from heron_control.schedulers.swarm import SwarmEngine

ABSENT = [
    (404, "network n not found"),
    (500, "network n not found"),
    (503, "rpc error: code = NotFound desc = network n not found"),
    (500, "No such container: c"),
    (500, "could not find the network n"),
]
KEPT = [(500, "rpc error: code = Unknown desc = context deadline exceeded"), (503, "This node is not a swarm manager")]
CALLS: list[Callable[[DockerEngine], None]] = [
    lambda engine: engine.remove_network("n"),
    lambda engine: engine.remove_volume("v"),
    lambda engine: engine.remove("c"),
]


class _Server(ThreadingHTTPServer):
    """Engine server. ``found``: it first shows the network with a container."""

    answer = (404, "")
    found = False


class _Handler(BaseHTTPRequestHandler):
    """Handler of one request."""

    def answer(self) -> None:
        server: Any = self.server
        path = self.path.partition("?")[0]
        if path.endswith("/version"):
            code, said = 200, {"ApiVersion": "1.41"}
        elif path.endswith(("/networks", "/secrets", "/services")):
            code, said = 200, []
        elif server.found and self.command == "GET":
            code, said = 200, {"Name": "n", "Containers": {"c": {}}}
        else:
            code, said = server.answer[0], {"message": server.answer[1]}
        content = json.dumps(said).encode()
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    do_GET = do_POST = do_DELETE = answer

    def log_message(self, *_: object) -> None:
        """Suppress the log."""


@pytest.fixture(scope="module")
def server() -> Iterator[_Server]:
    made = _Server(("127.0.0.1", 0), _Handler)
    thread = threading.Thread(target=made.serve_forever, args=(0.01,))
    thread.start()
    yield made
    made.shutdown()
    thread.join()
    made.server_close()


@pytest.fixture(params=[DockerEngine, SwarmEngine])
def engine(request: pytest.FixtureRequest, server: _Server) -> Iterator[DockerEngine]:
    made: DockerEngine = request.param("heronry", f"tcp://127.0.0.1:{server.server_port}")
    yield made
    made.close()


@pytest.mark.parametrize("found", [False, True])
@pytest.mark.parametrize("answer", ABSENT)
def test_missing_object_counts_as_removed(
    engine: DockerEngine, server: _Server, answer: tuple[int, str], found: bool
) -> None:
    server.answer, server.found = answer, found
    engine.remove_network("n")
    if not found:
        for call in CALLS:
            call(engine)


@pytest.mark.parametrize("answer", KEPT)
def test_other_answers_are_errors(engine: DockerEngine, server: _Server, answer: tuple[int, str]) -> None:
    server.answer, server.found = answer, False
    for remove in (engine.remove_network, engine.remove):
        with pytest.raises(EngineError, match="says"):
            remove("x")
