"""Two API servers with one home and a real ZooKeeper: the leader is killed or stopped, and the other takes over."""

from __future__ import annotations

import contextlib
import re
import secrets
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from heron_runtime.state import open_store, paths
from heron_runtime.state.store import StateStore
from tests.support.api_server_process import ROOT, ApiProcess, Heron, api_server
from tests.support.servers.zookeeper import Ensemble
from tests.support.waiting import wait_until
from tests.zookeeper.leader_relay import LeaderRelay, leads

FILE = ROOT / "tests" / "integration" / "heron_tracker" / "paced_words.py"
PLACE = "pair/ada/test"
SETTINGS = ("--config-property=heron.state.session.timeout.secs=4", "--wait-timeout", "150")


class Pair:
    """API servers with one home, the relay in front of them, and a user logged in through it."""

    def __init__(self, folder: Path, state_url: str, stack: contextlib.ExitStack) -> None:
        self.home = folder / "api"
        self.state_url = state_url
        self._stack = stack
        self.servers: list[ApiProcess] = []
        self.relay = LeaderRelay([])
        stack.callback(self.relay.close)
        self.start()
        self.start()
        self.leader()
        self.heron = Heron(folder / "user")
        self.heron.run("login", "pair", "--api", self.relay.url, "--token-file", str(self.home / "admin-token"))

    def start(self) -> ApiProcess:
        """Start another API server."""
        given = ("--cluster", "box", "--elect", "--state-url", self.state_url)
        name = f"-{secrets.token_hex(3)}"
        server = self._stack.enter_context(api_server(self.home, *given, ready=False, name=name))
        self.servers.append(server)
        self.relay.ports.append(server.port)
        return server

    def leader(self) -> ApiProcess:
        """Return the leader, once there is one and it accepts changes."""

        def look() -> ApiProcess | None:
            found = [s for s in self.servers if s.process.poll() is None and leads(s.port)]
            assert len(found) <= 1
            return found[0] if found and found[0].request("GET", "/readyz").status_code == 200 else None

        return wait_until(look)

    def standby(self) -> ApiProcess:
        """Return another living API server."""
        first = self.leader()
        return next(s for s in self.servers if s is not first and s.process.poll() is None)

    def staged(self) -> list[Path]:
        """Return the folders of submissions that are not in place yet."""
        return list(self.home.glob("topologies/box/ada/test/.*"))


@pytest.fixture(scope="module")
def store(server: Ensemble) -> Iterator[StateStore]:
    """Yield the store of the API servers."""
    made = open_store(server.url("/pair"))
    made.open()
    yield made
    made.close()


@pytest.fixture(scope="module")
def pair(server: Ensemble, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    folder = tmp_path_factory.mktemp("pair")
    with contextlib.ExitStack() as stack:
        yield Pair(folder, server.url("/pair"), stack)
    ours = [p for p in psutil.process_iter(["cmdline"]) if any(str(folder) in part for part in p.info["cmdline"] or ())]
    for process in ours:
        process.kill()
    assert ours == []


def test_standby_refuses_changes_and_names_the_leader(pair: Pair) -> None:
    leader, standby = pair.leader(), pair.standby()
    assert standby.request("GET", "/healthz").text == "ok"
    assert standby.request("GET", "/readyz").json() == {"ready": False, "trouble": "standby", "topologies": 0}
    for method, path in (("GET", "/api/v1/topologies"), ("POST", "/api/v1/topologies"), ("GET", "/leader")):
        refused = standby.request(method, path)
        assert (refused.status_code, refused.headers["heronry-undone"]) == (503, "standby")
        assert refused.headers["retry-after"]
        assert f"127.0.0.1:{leader.port} leads" in refused.json()["message"]


def test_second_api_server_with_another_home_or_without_election_is_rejected(pair: Pair, tmp_path: Path) -> None:
    given = ("--home", str(tmp_path / "other"), "--port", "0", "--cluster", "box", "--elect", "--state-url")
    command = [sys.executable, "-m", "heron_apiserver", *given, pair.state_url]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 6
    assert "uses another home" in done.stderr
    command[command.index("--home") + 1] = str(pair.home)
    command.remove("--elect")
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 6
    assert "start all of them with --elect" in done.stderr


def a_package_comes(pair: Pair, name: str, store: StateStore) -> bool:
    return any((pair.home / "uploads").iterdir())


def it_is_staged(pair: Pair, name: str, store: StateStore) -> bool:
    return bool(pair.staged())


def it_is_in_the_store(pair: Pair, name: str, store: StateStore) -> bool:
    return store.get(paths.execution_state(name)) is not None


@pytest.mark.timeout(400)
@pytest.mark.parametrize("moment", [a_package_comes, it_is_staged, it_is_in_the_store])
def test_submit_completes_when_the_leader_is_killed(
    pair: Pair, store: StateStore, moment: Callable[[Pair, str, StateStore], bool]
) -> None:
    name = f"Words-{secrets.token_hex(3)}"
    first, over = pair.leader(), threading.Event()
    struck = threading.Event()

    def strike() -> None:
        while not over.is_set():
            if moment(pair, name, store):
                first.kill()
                struck.set()
                return

    thread = threading.Thread(target=strike)
    thread.start()
    try:
        done = pair.heron.run("submit", PLACE, str(FILE), "--name", name, *SETTINGS)
    finally:
        over.set()
        thread.join()
    assert struck.is_set(), "it was to die meanwhile"
    print(moment.__name__, done.stderr)
    # The command has continued with the other: the topology exists once, complete, without remains of the first try.
    assert pair.leader() is not first
    found = pair.heron.data("status", PLACE, name)
    assert found["state"] == "running"
    assert pair.staged() == []
    assert [row["topology"] for row in pair.heron.data("list", "pair")] == [name]
    pair.start()
    pair.heron.run("kill", PLACE, name)
    assert pair.heron.data("list", "pair") == []
    assert store.children(paths.EXECUTION_STATES) == []


@pytest.mark.timeout(400)
def test_stopped_leader_changes_nothing_when_it_resumes(pair: Pair) -> None:
    name = "Sleeper"
    pair.heron.run("submit", PLACE, str(FILE), "--name", name, *SETTINGS)
    first = pair.leader()
    first.process.send_signal(signal.SIGSTOP)
    pair.relay.ports.remove(first.port)  # like a balancer without answers from it
    pair.servers.remove(first)
    try:
        second = pair.leader()
        assert pair.heron.data("status", PLACE, name)["state"] == "running"
        pair.heron.run("kill", PLACE, name)
        pair.heron.run("submit", PLACE, str(FILE), "--name", name, *SETTINGS)
        one = {p["name"]: p["pid"] for p in pair.heron.data("status", PLACE, name)["processes"]}
    finally:
        first.process.send_signal(signal.SIGCONT)
    assert first.process.wait(60) == 6
    assert re.search("the session with the state store has ended", first.log.read_text())
    assert pair.leader() is second
    assert {p["name"]: p["pid"] for p in pair.heron.data("status", PLACE, name)["processes"]} == one
    pair.heron.run("kill", PLACE, name)
    pair.start()


def test_leader_hands_over_at_once_on_sigterm(pair: Pair) -> None:
    first = pair.leader()
    first.process.send_signal(signal.SIGTERM)
    assert first.process.wait(30) == 0
    assert pair.leader() is not first
    assert pair.heron.data("list", "pair") == []
