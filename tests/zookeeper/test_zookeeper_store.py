"""Features of the ZooKeeper store only: its root, rights, connection, and sessions ended by servers."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import NoAuthError

from heron_control.schedulers.node_registration import is_killed
from heron_runtime.state import open_store
from heron_runtime.state.credential import StoreCredential
from heron_runtime.state.store import (
    BadVersion,
    CheckOwner,
    Create,
    Delete,
    Node,
    SessionState,
    Set,
    StateStore,
    StoreError,
    StoreReplaced,
    StoreUnavailable,
    TransactionFailed,
    store_identity,
)
from heron_runtime.state.zookeeper import ZookeeperStore
from tests.support.ports import free_port
from tests.support.servers.zookeeper import Ensemble
from tests.support.stores.zookeeper import ZookeeperStoreClients, end_session
from tests.support.waiting import wait_until
from tests.zookeeper.breaking_relay import BreakingRelay

CLUSTER = StoreCredential("heronry:long-password-1", "tracker:long-password-2")
READER = StoreCredential(reader="tracker:long-password-2")
STRANGER = StoreCredential("mallory:long-password-3")

OWNER = """
import os, signal, sys
from heron_runtime.state import open_store
from heron_runtime.state.store import CheckOwner, Create, Set, StoreError
from heron_runtime.state.zookeeper import ZookeeperStore

class Stopped(ZookeeperStore):
    # Falls asleep between what it saw and the transaction that relies on it.
    def _send(self, steps, *rest):
        if any(step.path == "/pplans/t" for step in steps):
            os.kill(os.getpid(), signal.SIGSTOP)
        return super()._send(steps, *rest)

store = Stopped(sys.argv[1], root=sys.argv[2], session_timeout_secs=1.0)
store.open()
store.commit([Create("/tmanagers/t", b"first", ephemeral=True)])
print("mine", flush=True)
try:
    store.commit([CheckOwner("/tmanagers/t"), Create("/pplans/t", b"by the first")])
    print("written", flush=True)
except StoreError as error:
    print(type(error).__name__, flush=True)
sys.stdin.read()
"""


@pytest.fixture
def admin(server: Ensemble) -> Iterator[KazooClient]:
    """Yield a separate client, as zkCli.sh would be."""
    client = KazooClient(hosts=server.hosts)
    client.start()
    yield client
    client.stop()
    client.close()


# -- the root ------------------------------------------------------------------------------------------------------


def test_root_is_created_with_its_parents(server: Ensemble, root: str, admin: KazooClient) -> None:
    store = open_store(server.url(f"{root}/of/several parts"))
    store.open()
    store.commit([Create("/topologies/a", b"1")])
    store.close()
    assert admin.get(f"{root}/of/several parts/topologies/a")[0] == b"1"


def test_root_is_heronry_without_a_path(server: Ensemble, admin: KazooClient) -> None:
    for url in (f"zookeeper://{server.hosts}", f"zookeeper://{server.hosts}/"):
        store = open_store(url)
        store.open()
        store.close()
    assert admin.exists("/heronry")


def test_roots_are_separate(server: Ensemble, root: str) -> None:
    one, two = open_store(server.url(f"{root}/one")), open_store(server.url(f"{root}/two"))
    one.open()
    two.open()
    one.commit([Create("/a/x", b"one")])
    assert two.get("/a/x") is None
    two.commit([Create("/a/x", b"two")])
    assert one.get("/a/x") == Node(b"one", 0)
    one.close()
    two.close()


def test_multi_read_is_pipelined_after_one_sync(world: ZookeeperStoreClients, monkeypatch: pytest.MonkeyPatch) -> None:
    """All requests are sent before the first answer is awaited."""
    store = world.client()
    store.commit([Create("/a/x", b"1")])
    client, sent = store._link.client(), list[str]()
    for name in ("sync_async", "get_async"):
        send = getattr(client, name)
        monkeypatch.setattr(client, name, lambda *given, name=name, send=send: sent.append(name) or send(*given))
    assert store.get_all(["/a/x", "/a/y", "/b/x"]) == [Node(b"1", 0), None, None]
    assert sent == ["sync_async", *["get_async"] * 3]


def test_removed_root_is_reported(world: ZookeeperStoreClients, admin: KazooClient) -> None:
    store = world.client()
    store.commit([Create("/a/x", b"")])
    admin.delete(world.root, recursive=True)
    assert store.get("/a/x") is None
    with pytest.raises(StoreError, match="root is missing"):
        store.commit([Create("/a/x", b"")])


def test_lost_contents_are_not_a_kill(world: ZookeeperStoreClients, admin: KazooClient) -> None:
    store = world.client()
    assert store_identity(store) == ""
    identity = store_identity(store, create=True)
    assert store_identity(world.client(), create=True) == identity != ""
    admin.delete(world.root, recursive=True)
    with pytest.raises(StoreReplaced, match="it is empty"):
        is_killed(store, "t", "t-1", identity)
    store_identity(world.client(), create=True)
    with pytest.raises(StoreReplaced, match="another identity"):
        is_killed(store, "t", "t-1", identity)


def test_unreachable_servers_are_named() -> None:
    port = free_port()
    store = ZookeeperStore(f"127.0.0.1:{port}", wait_secs=0.5)
    with pytest.raises(StoreUnavailable, match=rf"127\.0\.0\.1:{port} refuses .*Start the servers"):
        store.open()
    with pytest.raises(StoreUnavailable, match="not open"):
        store.get("/a/x")
    store.close()


# -- rights --------------------------------------------------------------------------------------------------------


def test_client_with_wrong_or_missing_credential_is_refused(world: ZookeeperStoreClients) -> None:
    world.client(credential=CLUSTER).commit([Create("/topologies/t", b"ours")])
    with pytest.raises(StoreError, match="credential of 'mallory' differs from the one") as caught:
        world.client(credential=STRANGER)
    assert "long-password" not in str(caught.value)
    with pytest.raises(StoreError, match="name its file"):
        world.client()


def test_reader_reads_and_watches_but_cannot_write(world: ZookeeperStoreClients, admin: KazooClient) -> None:
    owner = world.client(credential=CLUSTER)
    owner.commit([Create("/topologies/t", b"1"), Create("/tmanagers/t", b"me", ephemeral=True)])
    reader = world.client(credential=READER)
    assert reader.get("/topologies/t") == Node(b"1", 0)
    assert reader.children("/tmanagers") == ["t"]
    fired: list[str] = []
    reader.watch("/topologies", fired.append)
    owner.commit([Set("/topologies/t", b"2")])
    wait_until(lambda: fired, "the reader's watch fires")
    for operation in (Set("/topologies/t", b"3"), Create("/topologies/u", b""), Delete("/topologies/t")):
        with pytest.raises(StoreError, match="only reads"):
            reader.commit([operation])
    admin.add_auth("digest", READER.reader)
    for attempt in (  # ZooKeeper itself refuses as well
        lambda: admin.set(f"{world.root}/topologies/t", b"3"),
        lambda: admin.create(f"{world.root}/topologies/u"),
        lambda: admin.delete(f"{world.root}/topologies/t"),
    ):
        with pytest.raises(NoAuthError):
            attempt()
    assert owner.get("/topologies/t") == Node(b"2", 1)


def test_reader_does_not_create_the_root(world: ZookeeperStoreClients) -> None:
    with pytest.raises(StoreError, match="does not exist"):
        world.client(credential=READER)


def test_cluster_that_gets_a_credential_is_closed_to_others(world: ZookeeperStoreClients, admin: KazooClient) -> None:
    open_to_all = world.client()
    open_to_all.commit([Create("/topologies/t", b"1")])
    world.client(credential=CLUSTER)
    for path in ("", "/topologies", "/topologies/t"):
        granted = {(acl.id.id.partition(":")[0], acl.perms) for acl in admin_acls(admin, world.root + path)}
        assert granted == {("heronry", 31), ("tracker", 1)}, path
    with pytest.raises(StoreError, match="not allowed"):
        open_to_all.get("/topologies/t")


def admin_acls(admin: KazooClient, path: str) -> list[object]:
    """Return the ACL, if the client may read it."""
    admin.add_auth("digest", CLUSTER.cluster)
    return list(admin.get_acls(path)[0])


def test_logs_contain_no_password(world: ZookeeperStoreClients, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG):
        store = world.client(credential=CLUSTER)
        store.commit([Create("/a/x", b"")])
        end_session(store)
        wait_until(lambda: store.session() is SessionState.LOST, "the session is lost")
        store.get("/a/x")
    ours = "\n".join(record.getMessage() for record in caplog.records if record.name.startswith("heron_"))
    assert "lost" in ours
    assert "long-password" not in ours


# -- connection and session ----------------------------------------------------------------------------------------


def test_session_survives_a_server_that_is_stopped_and_resumed(tmp_path: Path) -> None:
    ensemble = Ensemble(tmp_path)
    ensemble.start()
    (server,) = ensemble.servers
    store, other = (ZookeeperStore(ensemble.hosts, session_timeout_secs=3.0, wait_secs=0.5) for _ in range(2))
    try:
        store.open()
        other.open()
        states: list[SessionState] = []
        fired: list[str] = []
        store.on_session(states.append)
        store.watch("/a/x", fired.append)
        store.commit([Create("/a/mine", b"", ephemeral=True)])
        server.stop()
        wait_until(lambda: states == [SessionState.SUSPENDED], "the hanging server is noticed")
        assert store.session() is SessionState.SUSPENDED
        with pytest.raises(StoreUnavailable, match="no ZooKeeper server"):
            store.get("/a/x")
        with pytest.raises(StoreUnavailable):
            store.commit([Create("/a/never", b"")])
        server.go_on()
        wait_until(lambda: states[-1] is SessionState.CONNECTED, "the server is found again")
        wait_until(lambda: fired, "the watch fires after the reconnect")
        # Whether the session outlived the pause is up to the server; the client's state agrees with it.
        stands = states == [SessionState.SUSPENDED, SessionState.CONNECTED]
        assert stands or SessionState.LOST in states
        wait_until(lambda: other.session() is SessionState.CONNECTED, "the other client is back")
        assert (other.get("/a/mine") is not None) == stands
        assert other.get("/a/never") is None
    finally:
        store.close()
        other.close()
        ensemble.kill()


def test_session_survives_servers_that_are_down(tmp_path: Path) -> None:
    """The outage is longer than the session timeout; the session continues with its nodes and watches."""
    # Restarted servers give a session its full timeout: enough for a slow machine to reconnect.
    ensemble = Ensemble(tmp_path)
    ensemble.start()
    store, other = (ZookeeperStore(ensemble.hosts, session_timeout_secs=8.0) for _ in range(2))
    try:
        store.open()
        other.open()
        states: list[SessionState] = []
        fired: list[str] = []
        store.on_session(states.append)
        store.watch("/a", fired.append)
        store.commit([Create("/a/mine", b"", ephemeral=True)])
        ensemble.kill()
        wait_until(lambda: states == [SessionState.SUSPENDED], "the death is noticed")
        wait_until(lambda: other.session() is SessionState.SUSPENDED, "the other client notices it")
        time.sleep(9)
        ensemble.start()
        wait_until(lambda: states[1:], "the servers are found again")
        assert states == [SessionState.SUSPENDED, SessionState.CONNECTED]
        del fired[:]
        wait_until(lambda: other.get("/a/mine"), "the other client reads again", retry_on=(StoreUnavailable,))
        assert other.get("/a/mine") == Node(b"", 0, True)
        assert store.commit([CheckOwner("/a/mine"), Set("/a/mine", b"still")]) == [0, 1]
        wait_until(lambda: fired, "watches fire on")
    finally:
        store.close()
        other.close()
        ensemble.kill()


def test_owner_stopped_between_check_and_write_does_not_write(world: ZookeeperStoreClients) -> None:
    other = world.client()
    process = subprocess.Popen(
        [sys.executable, "-c", OWNER, world.hosts, world.root],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        assert process.stdout.readline() == "mine\n"
        os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WNOWAIT)
        wait_until(lambda: other.get("/tmanagers/t") is None, "the servers end the session of the sleeper")
        other.commit([Create("/tmanagers/t", b"second", ephemeral=True)])
        process.send_signal(signal.SIGCONT)
        assert process.stdout.readline().strip() in ("BadVersion", "NoNode", "SessionLost", "AnswerLost")
        assert other.get("/pplans/t") is None
        assert other.get("/tmanagers/t") == Node(b"second", 0, True)
    finally:
        process.send_signal(signal.SIGCONT)
        process.stdin.close()
        process.wait(30)
        process.stdout.close()


def test_owner_check_detects_a_node_replaced_before_the_write(world: ZookeeperStoreClients) -> None:
    """The node has the same path and version, and another owner: only the folder's version differs."""
    owner, other = world.client(), world.client()
    owner.commit([Create("/tmanagers/t", b"first", ephemeral=True)])
    send = owner._send

    def late(steps: list[object], *rest: object) -> object:
        owner._send = send  # type: ignore[method-assign]
        other.commit([Delete("/tmanagers/t")])
        other.commit([Create("/tmanagers/t", b"second", ephemeral=True)])
        return send(steps, *rest)  # type: ignore[arg-type]

    owner._send = late  # type: ignore[method-assign, assignment]
    with pytest.raises(BadVersion, match="another session"):
        owner.commit([CheckOwner("/tmanagers/t"), Create("/pplans/t", b"")])
    assert other.get("/pplans/t") is None


def test_refused_transaction_leaves_only_empty_folders(store: StateStore) -> None:
    """A folder created for the transaction stays, empty."""
    with pytest.raises(TransactionFailed):
        store.commit([Create("/new/x", b""), Delete("/new/y")])
    assert store.children("/new") == []


@pytest.mark.parametrize("replies", range(1, 9))
def test_open_retries_a_connection_that_breaks(server: Ensemble, root: str, admin: KazooClient, replies: int) -> None:
    """This holds for every position of the break."""
    host, _, port = server.hosts.partition(":")
    relay = BreakingRelay((host, int(port)), [replies, replies])
    store = ZookeeperStore(relay.hosts, root=f"{root}/deep", credential=CLUSTER, wait_secs=30.0)
    try:
        store.open()
        assert store.get("/topologies/t") is None
        assert relay.broken > 0
    finally:
        store.close()
        relay.close()
    with pytest.raises(NoAuthError):
        admin.get(f"{root}/deep")
