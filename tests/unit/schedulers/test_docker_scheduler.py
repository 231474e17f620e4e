"""Docker scheduler on an in-memory engine: start, recovery, cleanup and waiting."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from heron_control.packing import pack
from heron_control.schedulers import container_spec, containers, docker, topology_reconciler
from heron_control.schedulers.docker import DockerOptions, DockerScheduler
from heron_control.schedulers.grants import Granted, write_granted
from heron_control.schedulers.known_store import STORE_ID_FILE
from heron_control.schedulers.scheduler import SchedulerError
from heron_control.schedulers.topology_folder import (
    Homes,
    draw_store_credential,
    load_launch,
    place_of,
    with_store,
    write_secrets,
)
from heron_runtime.launch import Launch
from heron_runtime.model.plan import PackingPlan, Resources
from heron_runtime.model.records import ExecutionState
from heron_runtime.model.topology import (
    ComponentKind,
    ComponentSpec,
    StreamSchema,
    TopologyDefinition,
    TopologyState,
)
from heron_runtime.state import open_store, paths, topologies
from heron_runtime.state.credential import StoreCredential
from heron_runtime.state.store import Set, store_identity
from heron_runtime.wire import message_codecs
from heron_runtime.wire.container import ProcessState, ProcessStatus
from tests.support.fake_engine import Container, FakeEngine, Machine

SPOUT = ComponentSpec("word", ComponentKind.SPOUT, "m:Word", 1, (StreamSchema(fields=("word",)),))
IMAGE = "heronry:latest"
NOTHING: Mapping[str, Any] = {}
PATIENCE_SECONDS = 30.0
BOTH_RUN = {0: "running", 1: "running"}


class World:
    """A machine, a store, and a scheduler that can be replaced."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.homes = Homes(folder, "docker")
        self.machine = Machine()
        self.machine.images.add(IMAGE)
        labels = {container_spec.JOINS_LABEL: "heronry", container_spec.ALIAS_LABEL: "zookeeper"}
        self.machine.add(Container("zookeeper-1", labels, [], {"heronry_cluster"}, "running"))
        self.store = open_store(f"memory://{folder.name}-{id(self)}")
        self.store.open()
        self.store_credential = ""
        self.scheduler = self.anew()

    def anew(self) -> DockerScheduler:
        """Return a new scheduler, as after a restart of the API server."""
        engine = FakeEngine(self.machine, "heronry")
        self.scheduler = DockerScheduler(self.store, self.homes, DockerOptions(), engine)
        return self.scheduler

    def place(self, name: str) -> Path:
        """Return the folder of a topology."""
        return place_of(self.folder, "docker", "ads", "prod", name)

    def submit(self, name: str = "words", config: Mapping[str, Any] = NOTHING, **settings: float) -> Launch:
        """Submit a topology to the store with its folder, without starting it."""
        home = self.place(name)
        home.mkdir(parents=True)
        write_secrets(home)
        definition = TopologyDefinition(name, f"{name}-0a1b2c", (SPOUT,), dict(config))
        state = ExecutionState(
            name, definition.id, "docker", "ads", "prod", TopologyState.RUNNING, "ada", 1.0, "0", str(home)
        )
        topologies.submit(self.store, definition, pack(definition), state)
        write_granted(home, Granted(definition, pack(definition)))
        given = {f"heron.{key.replace('_', '.')}": value for key, value in settings.items()}
        launch = Launch("docker", "ads", "prod", name, definition.id, "memory://", str(home), "/y", settings=given,
                        store_credential=self.store_credential)  # fmt: skip
        launch = self.scheduler.prepare(launch, home, home / "package.tar.gz")
        launch.save(home / "launch.json")
        return launch

    def running(self, name: str = "words") -> Launch:
        """Submit a topology and start its containers."""
        launch = self.submit(name)
        self.scheduler.start(launch, self.place(name) / "launch.json")
        self.scheduler.observe()
        assert self.states(launch) == BOTH_RUN
        time.sleep(0.002)  # a container born in the millisecond of an observation is too young for it
        return launch

    def runs(self, launch: Launch) -> bool:
        """Return whether container 1 is reported as running."""
        return self.status(launch).state is ProcessState.RUNNING

    def observe_until(self, condition: Callable[[], bool]) -> float:
        """Observe until the condition holds; return the last pause."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while True:
            pause_seconds = self.scheduler.observe()
            if condition():
                return pause_seconds
            assert time.monotonic() < deadline
            time.sleep(0.02)

    def states(self, launch: Launch) -> dict[int, str]:
        """Return the states of its containers on the machine."""
        seen = FakeEngine(self.machine, "heronry").containers()
        return {s.number: s.state for s in seen if s.topology_id == launch.topology_id}

    def status(self, launch: Launch, number: int = 1) -> ProcessStatus:
        """Return the reported status of a container."""
        return next(c for c in self.scheduler.status(launch).containers if c.container == number)


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    monkeypatch.setattr(containers, "STOP_MARGIN_MS", -9_000)  # an unresponsive container is killed after a second
    made = World(tmp_path)
    yield made
    for gate in made.machine.gates.values():
        gate.opened.set()
    made.scheduler.close()
    made.store.close()


def host(launch: Launch, number: int) -> str:
    return container_spec.container_host("heronry", launch, number)


def test_planned_containers_are_started_with_their_files(world: World) -> None:
    launch = world.running()
    name = container_spec.shared_name("heronry", launch)
    assert name in world.machine.find("zookeeper-1").networks, "the state store can be reached"
    files = world.machine.volumes[name]
    for file in ("secret", "key.pem"):
        assert files[f"start/1/{file}"] == (world.place("words") / file).read_bytes()
    started = Launch(**json.loads(files["start/1/launch.json"]))
    assert str(started.key_file) == "/var/lib/heronry/start/1/key.pem"
    known = ("secret", "key.pem", "launch.json")
    assert set(files) == {f"start/{number}/{file}" for number in (0, 1) for file in known}
    assert world.status(launch).state is ProcessState.RUNNING
    world.scheduler.observe()
    assert len(world.states(launch)) == 2, "nothing is started twice"
    assert world.machine.expected == {name: 2}, "whoever empties machines is told how many there are to be"
    assert started.host == f"{host(launch, 1)}.{world.machine.domain}", "as the engine says"


def test_container_receives_the_store_credential_of_its_topology(world: World) -> None:
    world.store_credential = str(world.place("words") / "store-credential")
    launch = world.submit()
    draw_store_credential(world.place("words"), StoreCredential("heronry:operators-password"), launch.topology_id)
    world.scheduler.start(launch, world.place("words") / "launch.json")
    world.scheduler.observe()
    files = world.machine.volumes[container_spec.shared_name("heronry", launch)]
    own = files["start/1/store-credential"]
    assert own == (world.place("words") / "store-credential").read_bytes()
    assert own.startswith(b"topology: topology.words-0a1b2c:")
    assert b"operators-password" not in b"".join(files.values())
    started = Launch(**json.loads(files["start/1/launch.json"]))
    assert started.store_credential == "/var/lib/heronry/start/1/store-credential"


def test_restarted_container_uses_the_new_store_url(world: World) -> None:
    """When a cluster's store URL changes, running containers continue and a restart passes the new URL."""
    launch = world.running()
    scheduler, folder = world.anew(), world.place("words")
    scheduler.observe()  # it knows the topology by its folder before the start
    renamed = with_store(launch, folder, "zookeeper+tls://z:2281/h")
    assert load_launch(folder) == renamed
    scheduler.start(renamed, folder / "launch.json")
    files = world.machine.volumes[container_spec.shared_name("heronry", launch)]
    assert json.loads(files["start/1/launch.json"])["store_url"] == launch.store_url
    assert scheduler.restart(renamed, 1, PATIENCE_SECONDS) == (1,)
    assert json.loads(files["start/1/launch.json"])["store_url"] == renamed.store_url


def test_containers_added_to_the_stored_plan_are_not_granted(world: World) -> None:
    """A topology that adds a container and 20 GiB per task to its stored plan receives neither."""
    launch = world.running()
    record = topologies.read_topology(world.store, "words")
    (first,) = record.packing.containers
    large = Resources(64.0, 20 << 30)
    greedy = replace(first, instances=tuple(replace(i, resources=large) for i in first.instances), resources=large)
    plan_of_its_own = PackingPlan("words", (greedy, replace(greedy, container=2)))
    config = {"topology.container.ram": 20 << 30, "topology.master.replicas": 9}
    definition = replace(record.definition, config=config)
    world.store.commit([
        Set(paths.packing_plan("words"), message_codecs.PACKING_PLAN.encode(plan_of_its_own)),
        Set(paths.topology("words"), message_codecs.TOPOLOGY.encode(definition)),
    ])  # fmt: skip
    before = {n: world.machine.find(host(launch, n)).memory_bytes for n in (0, 1)}
    for scheduler in (world.scheduler, world.anew()):
        scheduler.observe()
        assert world.states(launch) == BOTH_RUN, "no container more"
    for number in (0, 1):
        world.machine.find(host(launch, number)).state = "exited"
    world.observe_until(lambda: world.states(launch) == BOTH_RUN)
    after = {n: world.machine.find(host(launch, n)).memory_bytes for n in (0, 1)}
    assert after == before, "nor larger ones when they come back"


@pytest.mark.parametrize("egress", [False, True])
def test_topology_has_egress_only_if_its_submission_requests_it(world: World, egress: bool) -> None:
    launch = world.submit(config={"topology.network.egress": egress})
    world.scheduler.start(launch, world.place("words") / "launch.json")
    world.scheduler.observe()
    assert world.states(launch) == BOTH_RUN
    assert (container_spec.shared_name("heronry", launch) in world.machine.ways_out) == egress


def test_submission_requires_image_and_engine(world: World) -> None:
    world.machine.images.clear()
    with pytest.raises(SchedulerError, match="is not on the Docker engine"):
        world.submit()


def test_dead_container_is_restarted_with_its_reason(world: World) -> None:
    launch = world.running()
    world.machine.end(host(launch, 1), 3, "out of coffee")
    world.scheduler.observe()
    assert world.states(launch) == BOTH_RUN
    status = world.status(launch)
    assert (status.restarts, status.last_error) == (1, "exit code 3: out of coffee")
    world.machine.vanish(host(launch, 0))
    world.scheduler.observe()
    assert world.states(launch)[0] == "running"
    assert "vanished" in world.status(launch, 0).last_error


def test_repeatedly_dying_container_is_restarted_with_a_delay(world: World) -> None:
    launch = world.running()
    for death in range(4):
        world.observe_until(lambda: world.states(launch).get(1) == "running")
        world.machine.end(host(launch, 1), 137, out_of_memory=True)
        pause = world.observe_until(lambda n=death: world.status(launch).restarts > n or not world.runs(launch))
        assert world.runs(launch) == (death == 0), "the first start is at once"
        assert (pause < docker.OBSERVE_SECONDS) == (death > 0), "the watch wakes up when it is due"
    assert "out of memory" in world.status(launch).last_error


def test_failed_start_is_retried(world: World) -> None:
    launch = world.submit()
    world.machine.fails["create"] = "the Docker engine says: no space left on device"
    world.scheduler.observe()
    assert "no space left" in world.status(launch).last_error
    world.machine.fails.clear()
    world.observe_until(lambda: len(world.states(launch)) == 2)


def test_paused_or_disconnected_container_is_left_alone_and_reported(world: World) -> None:
    launch = world.running()
    world.machine.find(host(launch, 1)).state = "paused"
    world.machine.find(host(launch, 0)).networks.clear()
    world.scheduler.observe()
    assert "docker unpause" in world.status(launch, 1).last_error
    assert "docker network connect" in world.status(launch, 0).last_error
    assert world.status(launch, 1).restarts == world.status(launch, 0).restarts == 0


def test_new_scheduler_adopts_running_containers(world: World) -> None:
    launch = world.running()
    before = set(world.machine.containers)
    world.anew().observe()
    assert set(world.machine.containers) == before
    world.machine.end(host(launch, 1), 1, "while nobody watched")
    world.anew()
    world.observe_until(lambda: world.states(launch) == BOTH_RUN)
    assert "while nobody watched" in world.status(launch).last_error


def test_leftover_of_a_failed_start_is_removed(world: World) -> None:
    launch = world.running()
    stray = world.machine.find(host(launch, 1))
    world.machine.add(Container("stray", stray.labels, [], set()))
    world.scheduler.observe()
    world.scheduler.observe()
    assert "stray" not in {c.name for c in world.machine.containers.values()}
    assert world.states(launch) == BOTH_RUN


def test_kill_sends_sigterm_and_then_sigkill(world: World) -> None:
    launch = world.running()
    world.machine.deaf = True
    told: list[str] = []
    containers = [world.machine.find(host(launch, number)) for number in (0, 1)]
    topologies.kill(world.store, "words")
    world.scheduler.kill(launch, told.append)
    assert [c.got[0] for c in containers] == ["SIGTERM"] * 2
    assert all("SIGKILL" in c.got for c in containers)
    assert world.states(launch) == {}
    assert told
    world.scheduler.remove(launch)
    assert not world.machine.networks
    assert not world.machine.volumes


def test_new_scheduler_can_kill_an_unseen_topology(world: World) -> None:
    launch = world.running()
    topologies.kill(world.store, "words")
    world.anew().kill(launch)
    assert world.states(launch) == {}


def test_topology_killed_without_a_scheduler_is_cleaned_up(world: World) -> None:
    launch = world.running()
    topologies.kill(world.store, "words")
    world.anew().hold(launch)
    for _ in range(2):
        world.scheduler.observe()
    assert world.states(launch) == {}
    assert world.machine.volumes, "its logs are wanted"
    world.anew().observe()
    assert not world.machine.volumes
    assert not world.machine.networks


def test_logs_are_saved_from_the_volume(world: World, tmp_path: Path) -> None:
    launch = world.running()
    world.machine.volumes[container_spec.shared_name("heronry", launch)]["topology/log-files/a.log"] = b"last words"
    world.scheduler.kill(launch)
    world.scheduler.save_logs(launch, tmp_path)
    assert (tmp_path / "log-files" / "a.log").read_bytes() == b"last words"


def test_unavailable_engine_is_reported_and_kills_no_container(world: World) -> None:
    launch = world.running()
    world.machine.fails["containers"] = "the Docker engine does not answer"
    world.scheduler.observe()
    own = world.scheduler.status(launch).scheduler
    assert (own.state, own.last_error) == (ProcessState.RESTARTING, "the Docker engine does not answer")
    world.machine.fails.clear()
    world.scheduler.observe()
    assert world.scheduler.status(launch).scheduler.state is ProcessState.RUNNING
    assert world.status(launch).restarts == 0


def test_unavailable_store_kills_no_container(world: World) -> None:
    launch = world.running()
    world.store.close()
    world.machine.end(host(launch, 1), 1)
    world.scheduler.observe()
    assert world.states(launch) == BOTH_RUN, "the last plan holds"


def test_a_store_that_has_lost_its_records_ends_no_topology(world: World, tmp_path: Path) -> None:
    (tmp_path / STORE_ID_FILE).write_text(store_identity(world.store))
    launch = world.running()
    world.store = open_store("memory://")
    world.store.open()
    for _ in range(2):
        world.anew().observe()
    assert world.states(launch) == BOTH_RUN
    assert world.machine.volumes
    (tmp_path / STORE_ID_FILE).write_text(store_identity(world.store))
    for _ in range(2):
        world.scheduler.observe()
    assert world.states(launch) == {}, "the loss was accepted"


def test_restart_affects_only_the_named_container(world: World) -> None:
    launch = world.running()
    before = set(world.machine.containers)
    assert world.scheduler.restart(launch, 1, PATIENCE_SECONDS) == (1,)
    assert len(before - set(world.machine.containers)) == 1
    assert world.status(launch).restarts == 1
    assert world.status(launch, 0).restarts == 0
    with pytest.raises(SchedulerError, match="has no container 7"):
        world.scheduler.restart(launch, 7, 1.0)


def test_failed_signal_does_not_prevent_starts(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    launch = world.running()
    world.machine.deaf = True
    with pytest.raises(SchedulerError, match="not all containers restarted"):
        world.scheduler.restart(launch, 0, 0.0)
    world.machine.fails["signal"] = "the Docker engine does not answer"
    world.machine.end(host(launch, 1), 1)
    clock = topology_reconciler.now_ms
    # Container 0 is to be killed, and 1 to be started.
    monkeypatch.setattr(topology_reconciler, "now_ms", lambda: clock() + 5_000)
    world.observe_until(lambda: world.states(launch).get(1) == "running")
    assert world.status(launch).restarts == 1
    world.machine.fails.clear()
    world.observe_until(lambda: world.status(launch, 0).restarts == 1)


def test_kill_during_a_hanging_start_waits_and_leaves_nothing(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    other = world.running("other")
    launch = world.submit()
    gate = world.machine.hang("start", host(launch, 1))
    with ThreadPoolExecutor(2) as pool:
        watch = pool.submit(world.scheduler.observe)
        assert gate.entered.wait(PATIENCE_SECONDS)
        world.scheduler.kill(other)  # no other topology waits
        assert world.states(other) == {}
        with monkeypatch.context() as hasty:
            hasty.setattr(docker, "KILL_MARGIN_SECONDS", -10.0)
            with pytest.raises(SchedulerError, match="something of it still stops"):
                world.scheduler.kill(launch)
        killed = pool.submit(world.scheduler.kill, launch)
        assert world.scheduler.status(launch).scheduler.state is ProcessState.RUNNING, "nobody waits for a status"
        gate.opened.set()
        killed.result(PATIENCE_SECONDS)
        watch.result(PATIENCE_SECONDS)
    assert world.states(launch) == {}


async def test_hanging_engine_call_blocks_no_other_topology(world: World) -> None:
    held, other = world.running(), world.running("other")
    gate = world.machine.hang("signal", host(held, 1))
    restart = threading.Thread(target=world.scheduler.restart, args=(held, 1, PATIENCE_SECONDS))
    restart.start()  # holds the lock of its topology while the engine call lasts
    watch = asyncio.create_task(world.scheduler.run())
    try:
        async with asyncio.timeout(PATIENCE_SECONDS):
            await asyncio.to_thread(gate.entered.wait)
            for death in range(2):
                world.machine.end(host(other, 1), 1, "died")
                while world.status(other).restarts <= death or world.states(other)[1] != "running":
                    assert world.scheduler.status(held).containers
                    await asyncio.sleep(0.02)
        assert restart.is_alive(), "it hangs still"
    finally:
        gate.opened.set()
        await asyncio.to_thread(restart.join)
        watch.cancel()
        await asyncio.gather(watch, return_exceptions=True)
    assert world.status(held).restarts == 1
