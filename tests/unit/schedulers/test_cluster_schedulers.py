"""Submission checks of the swarm and k8s clusters; the Docker scheduler's tests cover the rest."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from heron_control.packing import pack
from heron_control.schedulers.docker import DockerScheduler
from heron_control.schedulers.grants import Granted, write_granted
from heron_control.schedulers.k8s import KubernetesOptions, KubernetesScheduler
from heron_control.schedulers.scheduler import SchedulerError
from heron_control.schedulers.swarm import SwarmOptions, SwarmScheduler
from heron_control.schedulers.topology_folder import Homes
from heron_runtime.extensions import SCHEDULERS
from heron_runtime.failures import NotAllowed
from heron_runtime.launch import Launch
from heron_runtime.model.topology import ComponentKind, ComponentSpec, StreamSchema, TopologyDefinition
from heron_runtime.state import open_store
from tests.support.fake_engine import FakeEngine, Machine

SPOUT = ComponentSpec("word", ComponentKind.SPOUT, "m:Word", 1, (StreamSchema(fields=("word",)),))
LAUNCH = Launch("swarm", "ads", "prod", "words", "words-0a1b2c", "memory://", "/x", "/y")
STATE = {"topology.reliability.mode": "EFFECTIVELY_ONCE"}
Prepare = Callable[..., Launch]
KINDS: dict[str, tuple[type[DockerScheduler], type[Any]]] = {
    "swarm": (SwarmScheduler, SwarmOptions), "k8s": (KubernetesScheduler, KubernetesOptions),
}  # fmt: skip


@pytest.fixture(params=sorted(KINDS))
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def prepare(kind: str, tmp_path: Path) -> Iterator[Prepare]:
    """Yield a function that returns the launch of a topology with a configuration and, if given, shared storage."""
    schedulers: list[DockerScheduler] = []

    def prepared(config: Mapping[str, Any], storage: Path | None = None, **settings: str) -> Launch:
        definition = TopologyDefinition("words", LAUNCH.topology_id, (SPOUT,), dict(config))
        write_granted(tmp_path, Granted(definition, pack(definition)))
        schedulers.append(scheduler_of(kind, tmp_path, storage))
        given = {key.replace("_", "."): value for key, value in settings.items()}
        return schedulers[-1].prepare(replace(LAUNCH, settings=given), tmp_path, tmp_path / "package.tar.gz")

    yield prepared
    for each in schedulers:
        each.close()


def scheduler_of(kind: str, folder: Path, storage: Path | None = None) -> DockerScheduler:
    scheduler, options = KINDS[kind]
    machine = Machine()
    machine.images.add("heronry:latest")
    store = open_store(f"memory://{folder.name}")
    return scheduler(store, Homes(folder, kind), options(storage=storage), FakeEngine(machine, "heronry"))


def test_stateful_topology_requires_shared_storage(kind: str, prepare: Prepare, tmp_path: Path) -> None:
    assert prepare({}).settings["heron.scheduler"] == kind
    with pytest.raises(NotAllowed, match="EFFECTIVELY_ONCE needs storage that all nodes share"):
        prepare(STATE)
    prepare(STATE, tmp_path)


def test_checkpoints_outside_of_shared_storage_are_rejected(prepare: Prepare, tmp_path: Path) -> None:
    key = "topology.stateful.checkpoint.storage"
    prepare({**STATE, key: "file:///var/lib/heronry/shared/mine"}, tmp_path)
    with pytest.raises(NotAllowed, match=f"{key}: file:///tmp/mine is not seen by all nodes"):
        prepare({**STATE, key: "file:///tmp/mine"}, tmp_path)


@pytest.mark.parametrize("kind", ["k8s"])
def test_user_code_runs_as_the_pods_single_user(kind: str, prepare: Prepare) -> None:
    assert "heron.user.code.user" not in prepare({}).settings
    with pytest.raises(NotAllowed, match=r"heron\.user\.code\.user: a Pod has one user"):
        prepare({}, heron_user_code_user="heronry-code")


def test_hold_for_logs_is_rejected_before_a_kill(kind: str, tmp_path: Path) -> None:
    scheduler = scheduler_of(kind, tmp_path)
    with pytest.raises(NotAllowed, match="keeps no log files"):
        scheduler.hold(LAUNCH)
    scheduler.close()


def test_swarm_options_come_from_the_environment(tmp_path: Path) -> None:
    given = {"HERONRY_IMAGE": "i:1", "HERONRY_SWARM_CONSTRAINTS": "node.role==worker, node.labels.disk==ssd"}
    found = SwarmOptions.of_environment({**given, "HERONRY_SWARM_STORAGE": str(tmp_path)})
    assert (found.image, found.constraints, found.storage) == (
        "i:1", ("node.role==worker", "node.labels.disk==ssd"), tmp_path,
    )  # fmt: skip
    assert SwarmOptions.of_environment({}).storage is None
    for path in ("/nowhere/at/all", "relative"):
        with pytest.raises(SchedulerError, match="is not a directory"):
            SwarmOptions.of_environment({"HERONRY_SWARM_STORAGE": path})


def test_k8s_options_come_from_the_environment(tmp_path: Path) -> None:
    given = {
        "HERONRY_IMAGE": "i:1", "HERONRY_K8S_NAMESPACE": "streams", "HERONRY_K8S_NODES": "disk=ssd, zone=a",
        "HERONRY_K8S_PULL_SECRET": "registry", "HERONRY_K8S_REACH": "10.0.0.0/8,192.0.2.1/32",
        "HERONRY_K8S_CLAIM": "shared", "HERONRY_K8S_STORAGE": str(tmp_path),
    }  # fmt: skip
    found = KubernetesOptions.of_environment(given)
    assert (found.image, found.storage, found.placing.namespace) == ("i:1", tmp_path, "streams")
    assert found.placing.selector == (("disk", "ssd"), ("zone", "a"))
    assert (found.placing.pull_secret, found.placing.claim) == ("registry", "shared")
    assert found.placing.reach == ("10.0.0.0/8", "192.0.2.1/32")
    assert KubernetesOptions.of_environment({"HERONRY_K8S_NODES": ""}).placing.selector == ()
    for wrong, words in (
        ({"HERONRY_K8S_NODES": "ssd"}, "'ssd' is not of the form label=value"),
        ({"HERONRY_K8S_STORAGE": "/nowhere/at/all", "HERONRY_K8S_CLAIM": "c"}, "is not a directory"),
        ({"HERONRY_K8S_CLAIM": "c"}, "give both, or none"),
    ):
        with pytest.raises(SchedulerError, match=words):
            KubernetesOptions.of_environment(wrong)


def test_scheduler_is_registered(kind: str) -> None:
    assert SCHEDULERS.load(kind).__module__ == f"heron_control.schedulers.{kind}"
