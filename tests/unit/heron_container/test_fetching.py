"""Package download from an HTTP server that answers like the API server, or wrongly."""

from __future__ import annotations

import hashlib
import stat
import threading
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from heron_container.bootstrap import FetchError, PackageRefused, fetch_package, prepare
from heron_control.packaging.shipping import pack_package
from heron_runtime.launch import Launch
from heron_runtime.net.handshake import prove_download

SECRET = "s3cret" * 8
NONCE = "1f.00"


class Server(ThreadingHTTPServer):
    """Server that answers with ``status`` and ``body`` to a valid proof, and records all requests."""

    body = b""
    status = 200
    fail_first = 0
    strange_first = 0  # number of proofs that reach a server with another nonce
    connections = 0
    daemon_threads = True
    asked: list[str]
    said = ""


class Handler(BaseHTTPRequestHandler):
    server: Server
    protocol_version = "HTTP/1.1"

    def setup(self) -> None:
        super().setup()
        self.server.connections += 1

    def do_GET(self) -> None:
        self.server.said += f"{self.requestline}{self.headers}"
        given = self.headers["Authorization"]
        if given is not None or self.server.fail_first:
            self.server.asked.append(self.path)
        proof = prove_download(SECRET, "T-1", self.path.rpartition("/")[2], NONCE)
        known = given == f"Heronry {NONCE} {proof}" and self.headers["heronry-topology"] == "T-1"
        status = self.server.status if known else 401
        if self.server.fail_first:
            self.server.fail_first -= 1
            status = 503
        strange = given is not None and self.server.strange_first > 0
        if strange:
            self.server.strange_first -= 1
            status = 401
        self.send_response(status)
        if given is None or strange:
            self.send_header("heronry-nonce", NONCE)
        self.send_header("Content-Length", str(len(self.server.body)))
        self.end_headers()
        self.wfile.write(self.server.body)

    def log_message(self, format: str, *arguments: object) -> None:
        """Suppress the log."""


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    source = tmp_path / "source"
    source.mkdir()
    (source / "words.py").write_text("x = 1\n")
    pack_package(source, tmp_path / "p.tar.gz")
    with Server(("127.0.0.1", 0), Handler) as made:
        made.asked = []
        made.body = (tmp_path / "p.tar.gz").read_bytes()
        thread = threading.Thread(target=made.serve_forever, args=(0.05,))
        thread.start()
        yield made
        made.shutdown()
        thread.join()


@pytest.fixture
def launch(tmp_path: Path, server: Server) -> Launch:
    home = tmp_path / "home"
    home.mkdir()
    (home / "secret").write_text(SECRET)
    digest = hashlib.sha256(server.body).hexdigest()
    url = f"http://127.0.0.1:{server.server_address[1]}"
    return Launch(
        "docker", "r", "e", "T", "T-1", "memory://", str(home), str(tmp_path / "run"),
        package_digest=digest, api_url=url,
    )  # fmt: skip


def test_package_is_fetched_once_and_kept(server: Server, launch: Launch) -> None:
    fetch_package(launch)
    assert (launch.package_dir / "words.py").read_text() == "x = 1\n"
    fetch_package(launch)
    assert server.asked == [f"/api/v1/packages/{launch.package_digest}"], "what is there needs no api server"
    assert [p.name for p in Path(launch.home).iterdir()] in (["secret", "package"], ["package", "secret"])


def test_secret_is_proved_but_never_sent(server: Server, launch: Launch) -> None:
    fetch_package(launch)
    assert "T-1" in server.said
    assert SECRET not in server.said
    assert server.connections == 1, "the proof uses the connection of its nonce"


def test_package_with_another_digest_is_not_unpacked(server: Server, launch: Launch) -> None:
    with pytest.raises(FetchError, match="sent a package with another digest"):
        fetch_package(replace(launch, package_digest="0" * 64))
    assert not launch.package_dir.exists()


@pytest.mark.parametrize("strange", [1, 3])
def test_new_nonce_of_another_server_is_accepted(server: Server, launch: Launch, strange: int) -> None:
    server.strange_first = strange
    fetch_package(launch)
    assert (launch.package_dir / "words.py").exists()
    assert len(server.asked) == 1 + strange


def test_endless_new_nonces_are_rejected(server: Server, launch: Launch) -> None:
    server.strange_first = 100
    with pytest.raises(PackageRefused, match="401"):
        fetch_package(launch)
    assert len(server.asked) < 10


@pytest.mark.parametrize(
    ("status", "error"),
    [(401, PackageRefused), (403, PackageRefused), (404, PackageRefused), (500, FetchError), (302, FetchError)],
)
def test_client_error_is_final_and_other_errors_are_not(
    server: Server, launch: Launch, status: int, error: type[Exception]
) -> None:
    server.status = status
    with pytest.raises(error, match=str(status)):
        fetch_package(launch)
    assert status != 302 or len(server.asked) == 1, "a redirect is not followed"
    with pytest.raises(FetchError, match="does not answer"):
        fetch_package(replace(launch, api_url="http://127.0.0.1:9"))


def test_container_retries_until_the_api_server_answers(server: Server, launch: Launch, tmp_path: Path) -> None:
    server.fail_first = 1
    start = tmp_path / "start-secret"
    start.write_text(SECRET)
    prepare(launch, start)
    assert launch.secret() == SECRET
    assert stat.S_IMODE(launch.secret_file.stat().st_mode) == 0o400
    assert len(server.asked) == 2
    for folder in (launch.log_dir, launch.metrics_dir, launch.package_dir, Path(launch.runtime_dir)):
        assert folder.is_dir()
