"""Submission checks of the k8s cluster; the Docker scheduler's tests cover the rest."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from heron_control.packing import pack
from heron_control.schedulers.grants import Granted, write_granted
from heron_control.schedulers.k8s import KubernetesOptions, KubernetesScheduler
from heron_control.schedulers.scheduler import SchedulerError
from heron_control.schedulers.topology_folder import Homes
from heron_runtime.extensions import SCHEDULERS
from heron_runtime.failures import NotAllowed
from heron_runtime.launch import Launch
from heron_runtime.model.topology import TopologyDefinition
from heron_runtime.state import open_store
from tests.support.fake_engine import FakeEngine, Machine
from tests.unit.schedulers.test_swarm_scheduler import LAUNCH, SPOUT, STATE


def prepared(
    folder: Path, config: Mapping[str, Any], storage: Path | None = None, settings: Mapping[str, Any] | None = None
) -> Launch:
    """Return the launch of a topology with this configuration."""
    definition = TopologyDefinition("words", LAUNCH.topology_id, (SPOUT,), dict(config))
    write_granted(folder, Granted(definition, pack(definition)))
    machine = Machine()
    machine.images.add("heronry:latest")
    store, homes = open_store(f"memory://{folder.name}"), Homes(folder, "k8s")
    scheduler = KubernetesScheduler(store, homes, KubernetesOptions(storage=storage), FakeEngine(machine, "heronry"))
    try:
        return scheduler.prepare(replace(LAUNCH, settings=dict(settings or {})), folder, folder / "package.tar.gz")
    finally:
        scheduler.close()


def test_user_code_runs_as_the_pods_single_user(tmp_path: Path) -> None:
    settings = prepared(tmp_path, {}).settings
    assert settings["heron.scheduler"] == "k8s"
    assert "heron.user.code.user" not in settings
    with pytest.raises(NotAllowed, match=r"heron\.user\.code\.user: a Pod has one user"):
        prepared(tmp_path, {}, settings={"heron.user.code.user": "heronry-code"})


def test_stateful_topology_requires_shared_storage(tmp_path: Path) -> None:
    with pytest.raises(NotAllowed, match="EFFECTIVELY_ONCE needs storage that all nodes share"):
        prepared(tmp_path, STATE)
    prepared(tmp_path, STATE, tmp_path)


def test_hold_for_logs_is_rejected_before_a_kill(tmp_path: Path) -> None:
    store, homes = open_store(f"memory://{tmp_path.name}"), Homes(tmp_path, "k8s")
    scheduler = KubernetesScheduler(store, homes, KubernetesOptions(), FakeEngine(Machine(), "h"))
    with pytest.raises(NotAllowed, match="keeps no log files"):
        scheduler.hold(LAUNCH)
    scheduler.close()


def test_options_come_from_the_environment(tmp_path: Path) -> None:
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


def test_k8s_scheduler_is_registered() -> None:
    assert SCHEDULERS.load("k8s").__module__ == "heron_control.schedulers.k8s"
