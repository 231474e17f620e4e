"""The ``heron`` command against an API server: the whole life of a topology, including crashes of the server."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from heron_runtime.launch import Launch
from heron_runtime.net.handshake import prove_download
from tests.support.api_server_process import ROOT, ApiProcess, Heron, api_server

pytestmark = pytest.mark.timeout(500)
FILE = Path(__file__).parent.parent / "heron_tracker" / "paced_words.py"
PLACE, NAME = "staging/ada/test", "PacedWords"


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("journey") / "api"


@pytest.fixture(scope="module")
def heron(tmp_path_factory: pytest.TempPathFactory) -> Heron:
    return Heron(tmp_path_factory.mktemp("user") / "home")


@pytest.fixture(scope="module", autouse=True)
def _no_leftovers(home: Path) -> Iterator[None]:
    yield
    ours = [p for p in psutil.process_iter(["cmdline"]) if any(str(home) in part for part in p.info["cmdline"] or ())]
    for process in ours:
        process.kill()
    assert ours == []


def log_in(heron: Heron, server: ApiProcess) -> None:
    """Log in to the cluster under another name than the server's own."""
    heron.run("login", "staging", "--api", server.url, "--token-file", str(server.home / "admin-token"))


@pytest.mark.core
def test_topology_lifecycle_through_the_api_server(home: Path, heron: Heron) -> None:
    with api_server(home, "--cluster", "box") as server:
        log_in(heron, server)
        assert heron.data("list", "staging") == []
        heron.run("submit", PLACE, str(FILE), "--wait-timeout", "150")
        found = heron.data("status", PLACE, NAME)
        assert (found["cluster"], found["role"], found["state"]) == ("staging", "ada", "running")
        assert {p["kind"] for p in found["processes"]} >= {"heron_scheduler", "topology_master", "heron_instance"}
        assert heron.data("list", "staging/ada")[0]["topology"] == NAME
        follower = subprocess.Popen(
            [sys.executable, "-m", "heron_cli", "logs", PLACE, NAME, "stream_manager-1", "--follow", "-n", "1"],
            cwd=ROOT, stdout=subprocess.PIPE, text=True, env={**os.environ, "HERONRY_HOME": str(heron.home)},
        )  # fmt: skip
        assert follower.stdout is not None
        assert follower.stdout.readline()
        follower.kill()
        follower.wait(30)
        follower.stdout.close()
        assert "exists already" in heron.run("submit", PLACE, str(FILE), code=4).stderr

        # The API server dies. The topology keeps running, and the next API server manages it.
        server.kill()
        assert "cannot be reached" in heron.run("status", PLACE, NAME, code=6).stderr
    with api_server(home, "--cluster", "box") as server:
        log_in(heron, server)
        assert heron.data("status", PLACE, NAME)["state"] in ("running", "degraded")
        launch = Launch.load(next(home.glob(f"topologies/*/*/*/{NAME}/launch.json")))
        its_package(server, launch)
        heron.run("kill", PLACE, NAME)
        assert heron.data("list", "staging") == []
        assert server.files() == set()
        assert not Path(launch.runtime_dir).exists()
        did = [(line["what"], line["result"]) for line in server.audit() if line["who"] == "admin"]
        assert did[0] == ("submit", 201)
        assert ("kill", 200) in did
        assert ("submit", 409) in did
        heron.run("logout", "staging")
        assert heron.run("list", "staging", code=3).stderr
        assert not (heron.home / "credentials.json").exists()


def its_package(server: ApiProcess, launch: Launch) -> None:
    """Check that a container can download its topology's package, and nothing else, with a proof of the secret."""
    headers = {"heronry-topology": launch.topology_id}
    path = f"/api/v1/packages/{launch.package_digest}"

    def prove(asked: str = path) -> dict[str, str]:
        nonce = server.request("GET", asked, token="", headers=headers).headers["heronry-nonce"]
        proof = prove_download(launch.secret(), launch.topology_id, asked.rpartition("/")[2], nonce)
        return {**headers, "Authorization": f"Heronry {nonce} {proof}"}

    answer = server.request("GET", path, token="", headers=prove())
    assert answer.status_code == 200
    assert answer.headers["etag"] == f'"{launch.package_digest}"'
    assert answer.content.startswith(b"\x1f\x8b")
    assert server.request("GET", path, token=launch.secret(), headers=headers).status_code == 401, "it is no token"
    proved = prove()
    assert server.request("GET", path, token="", headers={**proved, "heronry-topology": "x"}).status_code == 401
    nonce, forged = "1.00", {**headers, "Authorization": "Heronry 1.00 00"}
    assert nonce not in proved["Authorization"]
    strange = server.request("GET", path, token="", headers=forged)
    assert (strange.status_code, "heronry-nonce" in strange.headers) == (401, True), "another server's: asked anew"
    another = f"/api/v1/packages/{'a' * 64}"
    wrong = server.request("GET", another, token="", headers=proved)
    assert (wrong.status_code, "heronry-nonce" in wrong.headers) == (401, False), "the proof is of one package"
    assert server.request("GET", another, token="", headers=prove(another)).status_code == 403
    for method, denied in (("GET", "/api/v1/topologies"), ("DELETE", f"/api/v1/topologies/box/ada/test/{NAME}")):
        assert server.request(method, denied, token="", headers=proved).status_code == 401


def test_login_validates_and_stores_credentials(home: Path, tmp_path: Path) -> None:
    heron = Heron(tmp_path / "home")
    with api_server(home, "--cluster", "box") as server:
        assert "token" in heron.run("login", "box", "--api", server.url, stdin="wrong-token\n", code=5).stderr
        assert heron.run("login", "local", "--api", server.url, stdin=server.admin, code=2).stderr
        assert heron.run("login", "box", "--api", "ftp://x", stdin=server.admin, code=2).stderr
        assert heron.run("login", "box", "--api", server.url, stdin="", code=2).stderr
        assert not (heron.home / "credentials.json").exists()
        heron.run("login", "box", "--api", f"{server.url}/", stdin=f"{server.reader}\n")
        assert (heron.home / "credentials.json").stat().st_mode & 0o777 == 0o600
        assert heron.data("list", "box") == []
        refused = heron.run("submit", "box/ada", str(FILE), code=5)
        assert "a token of scope read does not permit to change" in refused.stderr
        good = [f for f in heron.data_of_doctor() if f["check"] == "cluster box"]
        assert [f["verdict"] for f in good] == ["good"]
        (heron.home / "credentials.json").chmod(0o644)
        assert "other users" in heron.run("list", "box", code=5).stderr
        (heron.home / "credentials.json").chmod(0o600)
    assert "cannot be reached" in heron.run("list", "box", code=6).stderr
    assert heron.run("logout", "boxx", code=3).stderr
    heron.run("logout", "box")
