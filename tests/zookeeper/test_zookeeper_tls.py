"""TLS to ZooKeeper: secrets are encrypted and sent to authentic servers only; errors name the remedy."""

from __future__ import annotations

import re
import select
import socket
import ssl
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from heron_runtime.state import open_store
from heron_runtime.state.credential import StoreCredential, read_credential
from heron_runtime.state.store import Create, Node, SessionState, Set, StoreError, StoreUnavailable
from heron_runtime.state.zookeeper import ZookeeperStore
from heron_runtime.state.zookeeper_connection import Handler, client_context
from tests.support.ports import free_ports
from tests.support.servers.certificates import Authority
from tests.support.servers.zookeeper import Ensemble, Server
from tests.support.waiting import wait_until
from tests.zookeeper.listening_relay import ListeningRelay

HERE = "127.0.0.1"
CLUSTER, READER = "heronry:long-password-1", "tracker:long-password-2"
OURS, CLIENTS, OTHERS = Authority("ours"), Authority("of clients"), Authority("of others")


class TlsServer(Server):
    """Server with TLS on the port ``secure``. ``shows`` is its key and certificate."""

    def __init__(self, folder: Path, shows: str, *, demands: str = "") -> None:
        plain, self.secure = free_ports(2)
        folder.mkdir()
        (folder / "server.pem").write_text(shows)
        more = (
            f"secureClientPort={self.secure}\nsecureClientPortAddress={HERE}\n"
            "serverCnxnFactory=org.apache.zookeeper.server.NettyServerCnxnFactory\n"
            f"ssl.keyStore.location={folder / 'server.pem'}\nssl.keyStore.type=PEM\n"
            f"ssl.clientAuth={'need' if demands else 'none'}\n"
        )
        if demands:
            (folder / "clients.pem").write_text(demands)
            more += f"ssl.trustStore.location={folder / 'clients.pem'}\nssl.trustStore.type=PEM\n"
        super().__init__(folder, plain, members=more)


Start = Callable[..., TlsServer]


@pytest.fixture(scope="module")
def start(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Start]:
    """Yield a function that starts a server; all end with the tests of this file."""
    servers: list[TlsServer] = []

    def make(shows: str, demands: str = "") -> TlsServer:
        server = TlsServer(tmp_path_factory.mktemp("tls") / "server", shows, demands=demands)
        servers.append(server)
        server.start()
        return server

    yield make
    for server in servers:
        server.kill()


@pytest.fixture(scope="module")
def secure(start: Start) -> TlsServer:
    """Return a server with a correct configuration."""
    return start(OURS.issue(HERE))


def credential(folder: Path, authorities: str = OURS.pem, *more: str) -> Path:
    """Write an operator's credential file, with the files it names."""
    file = folder / "credential"
    (folder / "ca.pem").write_text(authorities)
    file.write_text("\n".join([f"cluster: {CLUSTER}", f"reader: {READER}", "ca-file: ca.pem", *more]))
    file.chmod(0o400)
    return file


def url(port: int, root: str, scheme: str = "zookeeper+tls") -> str:
    return f"{scheme}://{HERE}:{port}{root}"


def client(port: int, root: str, file: Path) -> ZookeeperStore:
    """Open a client with a timeout for a busy machine."""
    store = ZookeeperStore(f"{HERE}:{port}", root=root, credential=read_credential(file), tls=True, wait_secs=60.0)
    store.open()
    return store


def is_told(said: str, port: int, root: str, file: Path) -> None:
    """Check that a client without a session gets this error (on a busy machine, perhaps after a timeout error)."""

    def told() -> bool:
        store = ZookeeperStore(f"{HERE}:{port}", root=root, credential=read_credential(file), tls=True, wait_secs=1.0)
        with pytest.raises(StoreUnavailable) as caught:
            store.open()
        assert re.search(f"{said}|overloaded|no sessions", str(caught.value))
        return re.search(said, str(caught.value)) is not None

    wait_until(told, said)


def test_traffic_contains_no_readable_data(secure: TlsServer, root: str, tmp_path: Path) -> None:
    relays = ListeningRelay(secure.secure), ListeningRelay(secure.port)
    by_tls = client(relays[0].port, root, credential(tmp_path))
    known = StoreCredential(CLUSTER, READER)
    plain = ZookeeperStore(f"{HERE}:{relays[1].port}", root=root, credential=known, wait_secs=60.0)
    try:
        plain.open()
        for store, name in ((by_tls, "by tls"), (plain, "plain")):
            store.commit([Create(f"/topologies/{name}", b"told in confidence")])
            assert store.get(f"/topologies/{name}") == Node(b"told in confidence", 0)
        for word in (b"long-password-1", b"told in confidence", b"topologies"):
            assert word in relays[1].heard, "this test hears what is said in clear"
            assert word not in relays[0].heard
    finally:
        for one in (by_tls, plain, *relays):
            one.close()


def test_select_sees_data_buffered_by_tls(tmp_path: Path) -> None:
    """Two answers arrive in one record: a select on the socket alone, as in kazoo, would wait for a third."""
    (tmp_path / "server.pem").write_text(OURS.issue(HERE))
    serving = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    serving.load_cert_chain(tmp_path / "server.pem")
    ours, theirs = socket.socketpair()
    with ThreadPoolExecutor(1) as pool:
        accepting = pool.submit(serving.wrap_socket, theirs, server_side=True)
        client = client_context(OURS.pem, "").wrap_socket(ours, server_hostname=HERE)
        with client, accepting.result() as server:
            handler = Handler(5.0, None)
            server.sendall(b"ab")
            assert client.recv(1) == b"a"
            assert select.select([client], [], [], 0)[0] == [], "the kernel has nothing more"
            assert handler.select([client], [], [], None)[0] == [client]
            assert client.recv(1) == b"b"


def test_concurrent_reads_and_writes(secure: TlsServer, root: str, tmp_path: Path) -> None:
    store = client(secure.secure, root, credential(tmp_path))
    fired: list[str] = []
    store.watch("/a", fired.append)
    try:
        store.commit([Create(f"/a/{number}", b"x" * 20_000) for number in range(20)])
        with ThreadPoolExecutor(8) as pool:
            for number, found in enumerate(pool.map(store.get, [f"/a/{n % 20}" for n in range(400)])):
                assert found is not None, number
        for number in range(20):
            store.commit([Set(f"/a/{number}", b"y")])
        wait_until(lambda: fired, "the watch fires")
    finally:
        store.close()


def test_client_reconnects_to_a_restarted_server(start: Start, root: str, tmp_path: Path) -> None:
    server = start(OURS.issue(HERE))
    store = client(server.secure, root, credential(tmp_path))
    try:
        store.commit([Create("/topologies/t", b"1")])
        server.kill()
        wait_until(lambda: store.session() is SessionState.SUSPENDED, "the session is suspended")
        server.start()
        assert store.get("/topologies/t") == Node(b"1", 0)
        assert store.session() is SessionState.CONNECTED
    finally:
        store.close()


def test_topology_credential_includes_the_operators_authorities(secure: TlsServer, root: str, tmp_path: Path) -> None:
    operators = read_credential(credential(tmp_path))
    file = tmp_path / "of a topology"
    file.write_text(operators.draw_for("words-1").to_text())
    file.chmod(0o400)
    (tmp_path / "ca.pem").unlink()
    client(secure.secure, root, file).close()


def test_server_with_a_wrong_certificate_gets_no_password(start: Start, root: str, tmp_path: Path) -> None:
    (tmp_path / "theirs").mkdir()
    for shows, said in (
        (OTHERS.issue(HERE), "signed by an unknown authority .*`ca-file`"),
        (OURS.issue(HERE, days=-1), "has expired: give the server a new one"),
        (OURS.issue("127.0.0.2"), "certificate for another name .*write its own in the store's URL"),
    ):
        server = start(shows)
        is_told(said, server.secure, root, credential(tmp_path))
        (tmp_path / "credential").unlink()
        server.kill()


def test_swapped_plain_and_tls_ports_are_named(secure: TlsServer, server: Ensemble, root: str, tmp_path: Path) -> None:
    file = credential(tmp_path)
    relay = ListeningRelay(secure.port)
    is_told("does not use TLS: write its secureClientPort", relay.port, root, file)
    assert b"long-password" not in relay.heard
    relay.close()
    is_told("does not use TLS", server.servers[0].port, root, file)  # a server without a TLS port
    plain = ZookeeperStore(f"{HERE}:{secure.secure}", root=root, wait_secs=1.0)
    with pytest.raises(StoreUnavailable, match=r"requires TLS: write zookeeper\+tls://"):
        plain.open()
    with pytest.raises(StoreError, match=r"not sent without TLS: write zookeeper\+tls://"):
        open_store(url(secure.port, root, "zookeeper"), credential_file=file)


def test_client_certificate_is_sent_if_the_server_demands_one(start: Start, root: str, tmp_path: Path) -> None:
    server = start(OURS.issue(HERE), CLIENTS.pem)
    file = credential(tmp_path)
    is_told("name one as `client-file`", server.secure, root, file)
    file.unlink()
    (tmp_path / "client.pem").write_text(CLIENTS.issue(HERE))
    client(server.secure, root, credential(tmp_path, OURS.pem, "client-file: client.pem")).close()
