"""Rights of a topology's credential for the store, tried with separate clients: its own work, and nothing else.

With the credential of topology A, the tests read, list, write, add to, remove and change the rights of each node of
another topology and of the control plane; ZooKeeper refuses everything that A does not need.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import NoAuthError, NotEmptyError
from kazoo.security import OPEN_ACL_UNSAFE, make_digest_acl

from heron_container.shell.store_watch import StoreWatch
from heron_control.schedulers.topology_folder import draw_store_credential, store_credential_in
from heron_runtime.launch import Launch
from heron_runtime.model.plan import PhysicalPlan, PlanVersion
from heron_runtime.model.records import ContainerLocation, MasterLocation
from heron_runtime.model.topology import TopologyState
from heron_runtime.state import paths, topologies
from heron_runtime.state.credential import StoreCredential, read_credential
from heron_runtime.state.store import (
    Check,
    CheckOwner,
    Create,
    Delete,
    NoNode,
    Set,
    StoreError,
    StoreForbidden,
    store_identity,
)
from heron_runtime.state.wrappers import CachedStore
from heron_runtime.state.zookeeper import ZookeeperStore
from heron_runtime.wire import message_codecs
from tests.support.servers.zookeeper import Ensemble
from tests.support.stores.zookeeper import ZookeeperStoreClients
from tests.support.waiting import wait_until
from tests.unit.state.test_topologies import parts
from topology_master.shell.store import read_stored

CLUSTER = StoreCredential("heronry:long-password-1", "tracker:long-password-2")
READER = StoreCredential(reader="tracker:long-password-2")
NEWER = StoreCredential("heronry:long-password-3", "tracker:long-password-4", former=CLUSTER.cluster)
SUBMITTED = (paths.execution_state, paths.topology, paths.packing_plan)
FOLDERS = (paths.masters, paths.physical_plans, paths.containers, paths.schedulers)


def submit(
    store: ZookeeperStore, folder: Path, name: str, number: int = 1, *, schedules: bool = True
) -> StoreCredential:
    """Submit a topology as the control plane does; return its credential, as its processes read it."""
    definition, packing, state = parts(name, number)
    topologies.submit(store, definition, packing, state)
    topologies.clear(store, name)
    folder.mkdir(exist_ok=True)
    draw_store_credential(folder, CLUSTER, definition.id)
    topologies.admit(store, name, store_credential_in(folder, CLUSTER).identity, schedules=schedules)
    return read_credential(folder / "store-credential")


def plan_of(name: str, number: int = 1) -> bytes:
    """Return the physical plan of a topology."""
    definition, packing, _ = parts(name, number)
    return message_codecs.PHYSICAL_PLAN.encode(PhysicalPlan(PlanVersion(1, 1), 1, definition, packing))


def work(store: ZookeeperStore, name: str, number: int = 1) -> None:
    """Write what master, containers and scheduler of a topology write."""
    location = message_codecs.MASTER_LOCATION.encode(MasterLocation(f"{name}-{number}", "h", 1, 1))
    plan = plan_of(name, number)
    store.commit(
        [
            Create(paths.master(name), location, ephemeral=True),
            Create(paths.epoch(name), b""),
            Check(paths.execution_state(name)),
            Create(paths.physical_plan(name), plan),
        ]
    )
    store.commit([CheckOwner(paths.master(name)), Set(paths.physical_plan(name), plan), Delete(paths.epoch(name))])
    for which in (0, 1):
        here = message_codecs.CONTAINER_LOCATION.encode(ContainerLocation(f"{name}-{number}", which, "h", 1, 1, 1))
        store.commit([Create(paths.container(name, which), here, ephemeral=True)])
    store.commit([Create(paths.scheduler(name), b"", ephemeral=True)])


def everything(client: KazooClient, path: str) -> list[str]:
    """Return a node and all nodes below it."""
    return [path, *(found for name in client.get_children(path) for found in everything(client, f"{path}/{name}"))]


@pytest.fixture
def control(world: ZookeeperStoreClients) -> ZookeeperStore:
    """Return the store client of the API server."""
    return world.client(credential=CLUSTER)


@pytest.fixture
def kazoo(server: Ensemble) -> Iterator[Callable[[str], KazooClient]]:
    """Yield a function that creates plain kazoo clients with a credential."""
    made: list[KazooClient] = []

    def make(credential: str) -> KazooClient:
        client = KazooClient(hosts=server.hosts, auth_data=[("digest", credential)])
        client.start()
        made.append(client)
        return client

    yield make
    for client in made:
        client.stop()
        client.close()


def may(attempt: Callable[[], object]) -> bool:
    """Return False if ZooKeeper forbids the attempt."""
    try:
        attempt()
    except NoAuthError:
        return False
    return True


def what_may(client: KazooClient, path: str) -> set[str]:
    """Return what a client can do to a node."""
    mine = [make_digest_acl("mallory", "x", all=True)]
    attempts: dict[str, Callable[[], object]] = {
        "read": lambda: client.get(path),
        "list": lambda: client.get_children(path),
        "see rights": lambda: client.get_acls(path),
        "write": lambda: client.set(path, b"forged"),
        "create": lambda: client.create(f"{path}/forged", b""),
        "create of the moment": lambda: client.create(f"{path}/forged-too", b"", ephemeral=True),
        "give rights": lambda: client.set_acls(path, mine),
        "open to all": lambda: client.set_acls(path, OPEN_ACL_UNSAFE),
    }
    found = {name for name, attempt in attempts.items() if may(attempt)}
    return found


def test_topology_does_its_own_work_with_its_own_credential(
    world: ZookeeperStoreClients, control: ZookeeperStore, tmp_path: Path
) -> None:
    identity = store_identity(control, create=True)
    own = world.client(credential=submit(control, tmp_path, "a"))
    work(own, "a")
    fired: list[str] = []
    for path in (paths.execution_state("a"), paths.packing_plan("a"), paths.master("a")):
        own.watch(path, fired.append)
    stored = read_stored(own, "a")
    assert store_identity(own) == identity != ""
    assert stored.definition is not None
    assert stored.master is not None
    record = topologies.read_topology(world.client(credential=READER), "a")
    assert [c.container for c in record.containers] == [0, 1]
    assert record.master is not None
    assert own.commit([]) == []


def test_credential_permits_nothing_else(
    world: ZookeeperStoreClients, control: ZookeeperStore, kazoo: Callable[[str], KazooClient], tmp_path: Path
) -> None:
    first = submit(control, tmp_path / "first", "a")
    other = submit(control, tmp_path / "other", "b", schedules=False)
    work(world.client(credential=first), "a")
    holder = world.client(credential=other)
    control.commit([Create(paths.scheduler("b"), b"", ephemeral=True)])
    for which in (0, 1):
        holder.commit([Create(paths.container("b", which), b"", ephemeral=True)])
    holder.commit([Create(paths.master("b"), b"", ephemeral=True), Create(paths.physical_plan("b"), b"")])

    admin, mallory = kazoo(CLUSTER.cluster), kazoo(first.topology)
    own = {world.root + function("a") for function in SUBMITTED}
    ours = {path for function in FOLDERS for path in everything(admin, world.root + function("a"))}
    nodes = everything(admin, world.root)
    assert len(nodes) > 25
    before = {path: (admin.get(path)[0], admin.get_acls(path)[0]) for path in nodes}
    tried = 0
    for path in nodes:
        if path in ours:
            continue
        allowed = what_may(mallory, path)
        wanted = {"read", "list", "see rights"} if path in own else set()
        assert allowed == wanted, f"{path}: {allowed}"
        # The root is in ZooKeeper's top node, which is open to all; the nodes in the root are protected.
        with pytest.raises(NotEmptyError if path == world.root else NoAuthError):
            mallory.delete(path)
        tried += 1
    assert tried > 15
    assert {path: (admin.get(path)[0], admin.get_acls(path)[0]) for path in nodes} == before
    # Nor missing nodes: beside its own, above, or in the name of another topology.
    for path in ("", "/topologies", "/executionstate", "/containers", "/tmanagers", "/pplans", "/containers/b"):
        with pytest.raises(NoAuthError):
            mallory.create(f"{world.root}{path}/c", b"")
    for path in sorted(ours):  # it can neither give away its own nodes, nor take them from the control plane
        assert not may(lambda path=path: mallory.set_acls(path, OPEN_ACL_UNSAFE)), path
    for function in FOLDERS:  # nor remove the folders
        assert not may(lambda function=function: mallory.delete(world.root + function("a"), recursive=True))


def test_scheduler_node_belongs_to_a_control_plane_that_schedules(
    world: ZookeeperStoreClients, control: ZookeeperStore, tmp_path: Path
) -> None:
    own = world.client(credential=submit(control, tmp_path, "a", schedules=False))
    control.commit([Create(paths.scheduler("a"), b"here", ephemeral=True)])
    for operation in (Set(paths.scheduler("a"), b"there"), Delete(paths.scheduler("a"))):
        with pytest.raises(StoreForbidden):
            own.commit([operation])
    with pytest.raises(StoreForbidden):
        own.get(paths.scheduler("a"))


def test_kill_removes_ephemeral_nodes_of_the_topology(
    world: ZookeeperStoreClients, control: ZookeeperStore, kazoo: Callable[[str], KazooClient], tmp_path: Path
) -> None:
    own = world.client(credential=submit(control, tmp_path, "a"))
    submit(control, tmp_path / "b", "b")
    work(own, "a")  # and its session continues
    assert topologies.kill(control, "a")
    topologies.clear(control, "a")
    left = everything(kazoo(CLUSTER.cluster), world.root)
    assert [path for path in left if "/a" in path.removeprefix(world.root)] == []
    assert [path for path in left if path.endswith("/b")]
    with pytest.raises(NoNode):  # processes still running cannot create nodes again
        own.commit([Create(paths.container("a", 0), b"", ephemeral=True)])
    with pytest.raises(StoreError):
        own.commit([Create(paths.execution_state("a"), b"")])


def test_resubmitted_name_is_closed_to_the_former_credential(
    world: ZookeeperStoreClients, control: ZookeeperStore, tmp_path: Path
) -> None:
    before = world.client(credential=submit(control, tmp_path / "1", "a", 1))
    work(before, "a")
    topologies.kill(control, "a")  # kill does not wait for processes: they still run
    after = world.client(credential=submit(control, tmp_path / "2", "a", 2))
    work(after, "a", 2)
    for attempt in (
        lambda: before.get(paths.execution_state("a")),
        lambda: before.children(paths.containers("a")),
        lambda: before.commit([Set(paths.physical_plan("a"), b"late")]),
        lambda: before.commit([Create(paths.container("a", 7), b"", ephemeral=True)]),
    ):
        with pytest.raises(StoreForbidden):
            attempt()
    assert topologies.read_topology(control, "a").master is not None


def test_forbidden_node_in_a_multi_read_is_named(
    world: ZookeeperStoreClients, control: ZookeeperStore, tmp_path: Path
) -> None:
    own = world.client(credential=submit(control, tmp_path / "a", "a"))
    submit(control, tmp_path / "b", "b")
    allowed = [paths.topology("a"), paths.master("a"), paths.packing_plan("a")]
    assert own.get_all(allowed) == control.get_all(allowed)
    with pytest.raises(StoreForbidden, match=f"^{paths.topology('b')}: "):
        own.get_all([*allowed, paths.topology("b"), paths.packing_plan("a")])


def test_node_hidden_by_a_topology_is_reported_and_does_not_block_a_kill(
    world: ZookeeperStoreClients, control: ZookeeperStore, kazoo: Callable[[str], KazooClient], tmp_path: Path
) -> None:
    own = submit(control, tmp_path / "1", "a")
    mallory = kazoo(own.topology)
    closed = [make_digest_acl("mallory", "x", all=True)]
    mallory.create(f"{world.root}{paths.wanted_state('a')}", b"", acl=closed)
    mallory.add_auth("digest", "mallory:x")
    mallory.create(f"{world.root}{paths.wanted_state('a')}/below", b"", acl=closed)
    assert [state.topology for state in topologies.list_topologies(control)] == ["a"]
    world.client(credential=replace(NEWER))  # a hidden node does not block a change of the cluster's password
    with pytest.raises(StoreForbidden, match="superuser"):
        topologies.clear(control, "a")


def test_cluster_credential_is_changed_while_topologies_run(
    world: ZookeeperStoreClients, control: ZookeeperStore, kazoo: Callable[[str], KazooClient], tmp_path: Path
) -> None:
    own = world.client(credential=submit(control, tmp_path, "a"))
    work(own, "a")
    renewed = world.client(credential=NEWER)
    topologies.admit(renewed, "a", store_credential_in(tmp_path, NEWER).identity, schedules=True)
    assert read_credential(tmp_path / "store-credential").control == NEWER.control, "for processes that start later"
    reader = world.client(credential=StoreCredential(reader=NEWER.reader))
    assert [c.container for c in topologies.read_topology(reader, "a").containers] == [0, 1]
    own.commit([CheckOwner(paths.master("a")), Set(paths.physical_plan("a"), b"")])
    strangers = kazoo(CLUSTER.cluster)
    admin = kazoo(NEWER.cluster)
    for path in everything(admin, world.root):
        assert not may(lambda path=path: strangers.get(path)), path
    assert not may(lambda: strangers.get_children(world.root))
    without_former = world.client(credential=replace(NEWER, former=""))
    assert topologies.kill(without_former, "a")
    topologies.clear(without_former, "a")


def test_leftovers_of_crashed_kills_are_removed_and_living_topologies_kept(
    world: ZookeeperStoreClients, control: ZookeeperStore, tmp_path: Path
) -> None:
    for name in ("a", "b"):
        work(world.client(credential=submit(control, tmp_path / name, name)), name)
    topologies.kill(control, "a")
    topologies.clear_orphans(control)
    for kind in (paths.MASTERS, paths.PHYSICAL_PLANS, paths.CONTAINERS, paths.SCHEDULERS):
        assert control.children(kind) == ["b"]
    assert topologies.read_topology(control, "b").execution.state is TopologyState.RUNNING


def asks_nothing(loop: StoreWatch) -> bool:
    """Observe, and return True if no server was asked; watches of its own writes may still fire."""
    asked: list[object] = []
    assert isinstance(loop._store, CachedStore)
    assert isinstance(loop._store._store, ZookeeperStore)
    link = loop._store._store._link
    with pytest.MonkeyPatch.context() as patch:
        ask = link.ask
        patch.setattr(link, "ask", lambda *given, **options: asked.append(given) or ask(*given, **options))
        loop._observe()
    return not asked


@pytest.mark.parametrize("scheduler", ["local", "docker"])
async def test_container_reads_only_permitted_nodes(
    server: Ensemble, world: ZookeeperStoreClients, control: ZookeeperStore, tmp_path: Path, scheduler: str
) -> None:
    own = world.client(credential=submit(control, tmp_path, "a", schedules=scheduler == "local"))
    own.commit([Create(paths.physical_plan("a"), plan_of("a"))])
    if scheduler == "docker":
        control.commit([Create(paths.scheduler("a"), b"", ephemeral=True)])
    launch = Launch("local", "me", "default", "a", "a-1", server.url(world.root), str(tmp_path), str(tmp_path),
                    settings={"heron.scheduler": scheduler},
                    store_credential=str(tmp_path / "store-credential"))  # fmt: skip
    loop = StoreWatch(launch, 0, ContainerLocation("a-1", 0, "h", 1, 1, 1))
    try:
        look = loop._observe()
        assert not look.killed
        assert look.plans is not None
        assert look.holder is not None
        assert look.scheduler is (scheduler != "local"), "a local one that is gone is looked after"
        wait_until(lambda: asks_nothing(loop), "a look while nothing happens asks nothing")
        topologies.kill(control, "a")
        wait_until(lambda: loop._observe().killed, "the container hears of the kill")
    finally:
        await loop.close()
