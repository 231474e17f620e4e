"""Contract of ``ClusterClient``: the direct client and the one of an API server behave alike.

Both serve the same home. Its topology ``words`` has stub processes, and topologies that a test submits have none. A
``call`` runs on both clients, which must return the same, or fail with the same class, text and remedy.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

import grpc
import pytest
import uvicorn

from heron_apiserver.api_server import ApiServer
from heron_apiserver.application import make_app
from heron_apiserver.tokens import TokenBook
from heron_cli.cluster_client import ClusterClient
from heron_cli.clusters import ClusterAddress
from heron_cli.home import SavedLogin
from heron_cli.local_clusters import LocalCluster
from heron_cli.remote_cluster import RemoteCluster
from heron_control.inspection.status_document import to_document
from heron_control.packing import pack
from heron_control.packing.runtime_settings import read_settings
from heron_control.packing.update import UpdateRequest
from heron_control.progress import silent
from heron_control.submission.submission import ClusterConfig, StartFrom, StateHandover, Submission
from heron_control.web.serving import bind, config_of, url_of
from heron_runtime.checkpoint_files import CheckpointFolder
from heron_runtime.failures import ExistsAlready, Failure, InvalidTopology, NotFound, UsageError, to_failure
from heron_runtime.launch import Launch
from heron_runtime.model.checkpoints import CheckpointRecord
from heron_runtime.model.plan import PlanVersion
from heron_runtime.model.topology import ComponentKind, ComponentSpec, TopologyDefinition, TopologyState
from heron_runtime.state import open_store, paths
from heron_runtime.state.topologies import read_topology
from heron_runtime.wire import message_codecs
from heron_runtime.wire.master import (
    CheckpointStatus,
    CheckpointSummary,
    MasterStatus,
    MetricsReply,
    MetricsRequest,
    MetricValue,
    RestoreState,
    SetState,
    StatusRequest,
    TakeCheckpoint,
)
from tests.support.definitions import plan_of
from tests.support.stub_processes import NAME, StubProcesses, all_processes, process
from tests.support.waiting import wait_until
from tests.unit.heron_apiserver.plain_scheduler import PlainScheduler
from tests.unit.submission.test_from_checkpoint import checkpoint

T = TypeVar("T")
KEEPS = {"topology.reliability.mode": "EFFECTIVELY_ONCE"}
HERE = ClusterAddress("local", "me")
ELSEWHERE = ClusterAddress("local", "other", "prod")
LOG = b"one\ntwo\nthree\n"
FAMILIES = (UsageError, NotFound, ExistsAlready, InvalidTopology, Failure)


@dataclass
class Clients:
    """Both clients of one cluster, and its topology with stub processes."""

    world: StubProcesses
    scheduler: PlainScheduler
    direct: ClusterClient
    remote: ClusterClient

    def call(self, operation: Callable[[ClusterClient], T]) -> T:
        """Return the result of both clients, which must be equal."""
        first, second = operation(self.direct), operation(self.remote)
        assert first == second
        return first

    def fail(self, operation: Callable[[ClusterClient], object]) -> Failure:
        """Return the failure of both clients, which must be equal."""
        first, second = (_failure(operation, cluster) for cluster in (self.direct, self.remote))
        assert _describe(first) == _describe(second)
        return first

    def requests(self, kind: type[T]) -> list[T]:
        """Return and forget the requests of a kind that the stub processes received."""
        received = [request for request in self.world.asked if isinstance(request, kind)]
        self.world.asked.clear()
        return received


def _failure(operation: Callable[[ClusterClient], object], cluster: ClusterClient) -> Failure:
    try:
        result = operation(cluster)
    except Exception as error:
        failure = to_failure(error)
        if failure is None:
            raise
        return failure
    raise AssertionError(f"{cluster} returned {result!r}")


def _describe(error: Failure) -> tuple[object, ...]:
    kind = next(family for family in FAMILIES if isinstance(error, family))
    return kind, error.exit_code, error.message, error.cure, error.details


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Clients]:
    with serve_both(tmp_path_factory.mktemp("contract")) as both:
        yield both


@pytest.fixture
def clients(shared: Clients) -> Clients:
    """Return the clients of the module, without requests of earlier tests."""
    shared.world.asked.clear()
    shared.scheduler.restarts.clear()
    return shared


@contextmanager
def serve_both(folder: Path) -> Iterator[Clients]:
    """Yield the clients of a new home below ``folder``."""
    world = StubProcesses(folder / "home", KEEPS)
    launch = Launch(
        "local", "me", "default", NAME, f"{NAME}-abc", world.home.state_store("local").url, str(world.place),
        str(folder / "run"),
    )  # fmt: skip
    launch.save(world.place / "launch.json")
    _add_processes(world)
    scheduler = PlainScheduler(folder / "runs")
    config = ClusterConfig(world.home.root, "local", world.home.state_store("local"))
    tokens = TokenBook(world.home.root)
    api = ApiServer(config, open_store(config.store.url), scheduler, "local", tokens)
    listener = bind("127.0.0.1", 0, "API server")
    server = uvicorn.Server(config_of(make_app(api), access_log=False, stop_seconds=5))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
    thread.start()
    try:
        wait_until(lambda: api.maintenance.ready, "the API server is ready", 20, poll=0.01)
        token = (world.home.root / "admin-token").read_text().strip()
        remote = RemoteCluster("local", SavedLogin(url_of("127.0.0.1", listener).rstrip("/"), "local", token))
        yield Clients(world, scheduler, LocalCluster(world.home, scheduler), remote)
    finally:
        server.should_exit = True
        thread.join(20)
        world.close()


def _add_processes(world: StubProcesses) -> None:
    """Add processes that run, and a master whose physical plan follows the packing plan."""
    tasks = CheckpointStatus(generation=5, restore_from=9, last=CheckpointSummary(9, 2000.0, 1.0, 1.0, 7))
    status = MasterStatus(1, TopologyState.RUNNING, PlanVersion(1, 1), tasks_state=tasks)
    value = MetricValue("word", "container_1_word_1", "__emit-count/default", "counter", 12.0, 2.0)

    def follow_plan(_: StatusRequest) -> MasterStatus:
        record = read_topology(world.store, NAME)
        if record.definition.config.get("user.stuck") != "yes":
            plan = plan_of(record.definition, record.packing)
            world.publish(paths.physical_plan(NAME), message_codecs.PHYSICAL_PLAN.encode(plan))
        return status

    def restore(request: RestoreState) -> Any:
        older = bool(request.checkpoint) and not request.repeat_output
        return (grpc.StatusCode.FAILED_PRECONDITION, "output would be written again") if older else status

    answers = {"SetState": status, "TakeCheckpoint": status, "RestoreState": restore}
    world.add_master(follow_plan, MetricsReply(60.0, (value,)), **answers)
    world.add_scheduler(*(process("heron_container", f"heron_container-{n}", n) for n in range(3)))
    for number in range(3):
        world.add_container(number, *all_processes(number), files={"container_2_count_2.log": LOG})
    checkpoint(CheckpointFolder(world.place / "checkpoints"))
    world.publish(paths.checkpoints(NAME), message_codecs.CHECKPOINT_RECORD.encode(CheckpointRecord(4, 9, 9)))


def submission(folder: Path, name: str, serial: int = 1, component: str = "words", **more: Any) -> Submission:
    """Return a submission of a spout that keeps state, with two tasks."""
    package = folder / f"package-{serial}-{len(list(folder.iterdir()))}"
    package.mkdir()
    (package / "words.py").write_text("x = 1\n")
    spout = ComponentSpec(component, ComponentKind.SPOUT, "m:Word", 2)
    definition = TopologyDefinition(name, f"{name}-{serial}", (spout,), more.pop("config", KEEPS))
    return Submission(definition, pack(definition), package, "me", "default", "ada", **more)


def test_list_and_status_have_the_same_documents(clients: Clients) -> None:
    (row,) = clients.call(lambda c: c.topologies(ClusterAddress("local")))
    assert (row["topology"], row["state"], row["containers"], row["tasks"]) == (NAME, "running", 2, 3)
    assert clients.call(lambda c: c.topologies(HERE)) == [row]
    assert clients.call(lambda c: c.topologies(ELSEWHERE)) == []
    document = clients.call(lambda c: to_document(c.status(HERE, NAME)))
    assert (document["state"], len(document["processes"])) == ("running", 13)


def test_metrics_are_those_of_the_master(clients: Clients) -> None:
    found = clients.call(lambda c: c.metrics(HERE, NAME, "word", 60.0, ["__emit-count"]))
    assert found["components"]["word"]["__emit-count/default"]["total"] == 12.0
    assert clients.requests(MetricsRequest) == [MetricsRequest("word", 60.0)] * 2
    assert clients.call(lambda c: c.metrics(HERE, NAME, "", 10_000_000.0, ()))["flow"][0]["emitted"] == 12.0
    assert "no component 'wrod'" in clients.fail(lambda c: c.metrics(HERE, NAME, "wrod", -1.0, ())).message


def test_logs_are_listed_and_read_in_parts(clients: Clients) -> None:
    processes = clients.call(lambda c: (c.logs(HERE, NAME).processes, c.logs(HERE, NAME).components))
    assert processes[1] == ("word", "count")
    path = "container_2_count_2.log"
    for offset, length, text in ((0, 3, b"one"), (4, 100, b"two\nthree\n"), (-6, 100, b"three\n"), (99, 9, b"")):
        part = clients.call(lambda c, o=offset, n=length: c.logs(HERE, NAME).read(2, path, o, n))  # type: ignore[misc]
        assert (part.data, part.size_bytes) == (text, len(LOG))
    for container, missing in ((2, "stream_manager-2.log"), (77, path)):
        for cluster in (clients.direct, clients.remote):
            with pytest.raises(FileNotFoundError):
                cluster.logs(HERE, NAME).read(container, missing, 0, 10)


def test_orders_reach_the_processes(clients: Clients) -> None:
    for state in (TopologyState.PAUSED, TopologyState.RUNNING):
        clients.call(lambda c, s=state: c.set_state(HERE, NAME, s, silent))  # type: ignore[misc]
    wanted = [SetState(state, 1) for state in (TopologyState.PAUSED, TopologyState.RUNNING) for _ in range(2)]
    assert clients.requests(SetState) == wanted
    assert clients.call(lambda c: c.take_checkpoint(HERE, NAME, 7.5, silent)) == 9
    assert clients.requests(TakeCheckpoint) == [TakeCheckpoint(7.5, 1)] * 2
    assert clients.call(lambda c: c.restore(HERE, NAME, 3, silent, repeat_output=True)) == (5, 9)
    assert clients.requests(RestoreState) == [RestoreState(1, 3, True)] * 2
    refused = clients.fail(lambda c: c.restore(HERE, NAME, 3, silent, repeat_output=False))
    assert (refused.message, refused.exit_code) == ("output would be written again", 1)
    assert clients.call(lambda c: c.drain(HERE, NAME, 9.0, silent)) == 9
    assert clients.requests(TakeCheckpoint) == [TakeCheckpoint(9.0, 1, True)] * 2
    assert clients.call(lambda c: c.restart(HERE, NAME, 2, 7.5)) == (2,)
    assert clients.scheduler.restarts == [(2, 7.5)] * 2


def test_checkpoints_are_listed_named_and_deleted(clients: Clients) -> None:
    (row,) = clients.call(lambda c: c.checkpoints(HERE, NAME))
    assert (row["checkpoint"], row["complete"], row["tasks"], row["name"]) == (9, True, 2, None)
    details = clients.call(lambda c: c.checkpoint(HERE, NAME, "9", verify=True))
    assert (details["files"], details["damaged_files"]) == (2, [])
    for namer, other, label in ((clients.direct, clients.remote, "a"), (clients.remote, clients.direct, "b")):
        number, folder = namer.name_checkpoint(HERE, NAME, label, 9.0, silent)
        assert number == 9
        assert clients.call(lambda c, n=label: c.checkpoint(HERE, NAME, n, verify=False))["folder"] in folder  # type: ignore[misc]
        taken = clients.fail(lambda c, n=label: c.name_checkpoint(HERE, NAME, n, 9.0, silent))  # type: ignore[misc]
        assert f"has a checkpoint {label!r} already" in taken.message
        other.delete_checkpoint(HERE, NAME, label)
        assert clients.call(lambda c: c.checkpoints(HERE, NAME)) == [row]
    assert clients.requests(TakeCheckpoint) == [TakeCheckpoint(9.0, 1)] * 2


def test_update_changes_settings_or_returns_to_the_old_plan(clients: Clients) -> None:
    def update(value: str, seconds: float, *, dry_run: bool) -> Callable[[ClusterClient], dict[str, Any]]:
        request = UpdateRequest(settings=read_settings([f"user.stuck:{value}"]))
        return lambda c: c.update(HERE, NAME, request, seconds, silent, dry_run=dry_run)

    planned = clients.call(lambda c: c.update(HERE, NAME, UpdateRequest({"count": 3}, 3), 9.0, silent, dry_run=True))
    assert (planned["parallelism"], planned["containers"]) == ({"count": [2, 3]}, [2, 3])
    expected = clients.call(update("no", 9.0, dry_run=True))
    for number, cluster in enumerate((clients.direct, clients.remote)):
        done = update(f"no-{number}", 9.0, dry_run=False)(cluster)
        assert {**done, "settings": None} == {**expected, "settings": None}
        assert read_topology(clients.world.store, NAME).definition.config["user.stuck"] == f"no-{number}"
    failed = clients.fail(update("yes", 1.0, dry_run=False))
    assert (failed.exit_code, "it runs by its old plan again" in failed.cure) == (1, True)
    assert read_topology(clients.world.store, NAME).definition.config["user.stuck"] == "no-1"
    assert "changes nothing" in clients.fail(update("no-1", 9.0, dry_run=False)).message


UNKNOWN: dict[str, Callable[[ClusterClient, ClusterAddress, str], object]] = {
    "status": lambda c, a, n: c.status(a, n),
    "metrics": lambda c, a, n: c.metrics(a, n, "", -1.0, ()),
    "logs": lambda c, a, n: c.logs(a, n),
    "set_state": lambda c, a, n: c.set_state(a, n, TopologyState.PAUSED, silent),
    "restart": lambda c, a, n: c.restart(a, n, -1, 1.0),
    "drain": lambda c, a, n: c.drain(a, n, 1.0, silent),
    "update": lambda c, a, n: c.update(a, n, UpdateRequest(containers=1), 1.0, silent, dry_run=False),
    "restore": lambda c, a, n: c.restore(a, n, 0, silent, repeat_output=False),
    "checkpoints": lambda c, a, n: c.checkpoints(a, n),
    "checkpoint": lambda c, a, n: c.checkpoint(a, n, "9", verify=False),
    "take_checkpoint": lambda c, a, n: c.take_checkpoint(a, n, 1.0, silent),
    "name_checkpoint": lambda c, a, n: c.name_checkpoint(a, n, "x", 1.0, silent),
    "delete_checkpoint": lambda c, a, n: c.delete_checkpoint(a, n, "x"),
    "kill": lambda c, a, n: c.kill(a, n, silent),
}


@pytest.mark.parametrize("operation", UNKNOWN)
def test_unknown_topologies_are_not_found(clients: Clients, operation: str) -> None:
    run = UNKNOWN[operation]
    for address, name in ((HERE, "wrods"), (ELSEWHERE, NAME), (HERE, "a/b"), (HERE, "a?b#c")):
        failure = clients.fail(lambda c, a=address, n=name: run(c, a, n))  # type: ignore[misc]
        assert isinstance(failure, NotFound)


@pytest.mark.parametrize(
    ("kind", "operation"),
    [
        (NotFound, lambda c: c.restart(HERE, NAME, 77, 1.0)),
        (NotFound, lambda c: c.restart(HERE, NAME, 10**9, 1.0)),
        (NotFound, lambda c: c.checkpoint(HERE, NAME, "8", verify=False)),
        (NotFound, lambda c: c.checkpoint(HERE, NAME, "bofore", verify=True)),
        (NotFound, lambda c: c.delete_checkpoint(HERE, NAME, "nothing")),
        (UsageError, lambda c: c.delete_checkpoint(HERE, NAME, "a/b")),
        (UsageError, lambda c: c.checkpoint(HERE, NAME, "a?b", verify=False)),
        (UsageError, lambda c: c.name_checkpoint(HERE, NAME, "../up", 1.0, silent)),
        (UsageError, lambda c: c.update(HERE, NAME, UpdateRequest(), 9.0, silent, dry_run=False)),
        (UsageError, lambda c: c.update(HERE, NAME, UpdateRequest({"cuont": 3}), 9.0, silent, dry_run=True)),
        (UsageError, lambda c: c.update(HERE, NAME, UpdateRequest(move=10**6), 9.0, silent, dry_run=True)),
        (InvalidTopology, lambda c: c.update(HERE, NAME, UpdateRequest(containers=10**6), 9.0, silent, dry_run=True)),
    ],
)  # fmt: skip
def test_invalid_requests_fail_alike(
    clients: Clients, kind: type[Failure], operation: Callable[[ClusterClient], object]
) -> None:
    assert isinstance(clients.fail(operation), kind)


@pytest.mark.parametrize("which", ["direct", "remote"])
def test_submit_replace_and_kill(clients: Clients, tmp_path: Path, which: str) -> None:
    cluster: ClusterClient = getattr(clients, which)
    running, store = clients.scheduler.running, clients.world.store
    name = f"fresh-{which}"
    first = submission(tmp_path, name, state=TopologyState.PAUSED, settings={"heron.stop.grace.secs": 3.0})
    started = cluster.submit(first, silent)
    assert isinstance(started(), bool)
    record = read_topology(store, name)
    assert (record.execution.state, record.execution.submission_user) == (TopologyState.PAUSED, "ada")
    assert Launch.load(Path(record.execution.home, "launch.json")).settings == {"heron.stop.grace.secs": 3.0}
    assert running() >= {f"{name}-1"}
    taken = clients.fail(lambda c: c.submit(submission(tmp_path, name, 2), silent))
    assert (taken.message, isinstance(taken, ExistsAlready)) == (f"topology {name!r} exists already", True)
    away = clients.fail(lambda c: c.submit(replace(submission(tmp_path, name, 2), role="x"), silent, replace=True))
    assert f"not at local/x/default but at {record.execution.cluster}/me/default" in away.message
    lacking = StartFrom("local/me/default/nothing@good")
    assert isinstance(clients.fail(lambda c: c.submit(submission(tmp_path, "b", start=lacking), silent)), NotFound)
    clients.scheduler.fails = {"start"}
    assert clients.fail(lambda c: c.submit(submission(tmp_path, "b", 3), silent)).message == "start fails"
    clients.scheduler.fails = set()
    cluster.submit(submission(tmp_path, name, 2), silent, replace=True)
    assert {each for each in running() if each.startswith(name)} == {f"{name}-2"}
    folder = Path(read_topology(store, name).execution.home)
    assert cluster.kill(HERE, name, silent, keep_logs=True).startswith(str(folder / "log-files"))
    assert (folder / "log-files" / "inside.log").exists()
    assert not {each for each in running() if each.startswith(name)}
    assert isinstance(clients.fail(lambda c: c.kill(HERE, name, silent)), NotFound)


@pytest.mark.parametrize("which", ["direct", "remote"])
def test_replacement_continues_from_the_state(tmp_path: Path, which: str) -> None:
    with serve_both(tmp_path / "cluster") as clients:
        cluster: ClusterClient = getattr(clients, which)
        other = submission(tmp_path, NAME, 2, "others", handover=StateHandover(seconds=9.0))
        lost = clients.fail(lambda c: c.submit(other, silent, replace=True))
        assert "nothing was changed, words continues" in lost.message
        assert read_topology(clients.world.store, NAME).execution.topology_id == f"{NAME}-abc"
        next_version = submission(tmp_path, NAME, 2, handover=StateHandover(seconds=9.0))
        cluster.submit(next_version, silent, replace=True)
        assert clients.requests(TakeCheckpoint) == [TakeCheckpoint(9.0, 1, True)]
        launch = Launch.load(clients.world.place / "launch.json")
        assert (launch.topology_id, launch.start_checkpoint) == (f"{NAME}-2", 9)
        unknown = clients.fail(lambda c: c.metrics(HERE, NAME, "", -1.0, ()))
        assert "no topology master" in unknown.message
        (row,) = (row for row in clients.call(lambda c: c.checkpoints(HERE, NAME)) if row["name"])
        assert row["name"] == "upgrade-9"
        start = StartFrom(f"local/me/default/{NAME}@upgrade-9")
        cluster.submit(submission(tmp_path, "after", start=start), silent)
        assert CheckpointFolder(clients.world.place.with_name("after") / "checkpoints").manifests() == [9]
        dropping = submission(tmp_path, "dropping", component="others", start=replace(start, may_drop=True))
        cluster.submit(dropping, silent)
        cluster.submit(submission(tmp_path, NAME, 3, config={}), silent, replace=True)
        assert read_topology(clients.world.store, NAME).execution.topology_id == f"{NAME}-3"
