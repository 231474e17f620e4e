"""Submission checks of the swarm cluster; the Docker scheduler's tests cover the rest."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from heron_control.packing import pack
from heron_control.schedulers.grants import Granted, write_granted
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


def prepared(folder: Path, config: Mapping[str, Any], storage: Path | None = None) -> Launch:
    """Return the launch of a topology with this configuration."""
    definition = TopologyDefinition("words", LAUNCH.topology_id, (SPOUT,), dict(config))
    write_granted(folder, Granted(definition, pack(definition)))
    machine = Machine()
    machine.images.add("heronry:latest")
    store = open_store(f"memory://{folder.name}")
    scheduler = SwarmScheduler(
        store, Homes(folder, "swarm"), SwarmOptions(storage=storage), FakeEngine(machine, "heronry")
    )
    try:
        return scheduler.prepare(LAUNCH, folder, folder / "package.tar.gz")
    finally:
        scheduler.close()


def test_stateful_topology_requires_shared_storage(tmp_path: Path) -> None:
    assert prepared(tmp_path, {}).settings["heron.scheduler"] == "swarm"
    with pytest.raises(NotAllowed, match="EFFECTIVELY_ONCE needs storage that all nodes share"):
        prepared(tmp_path, STATE)
    prepared(tmp_path, STATE, tmp_path)


def test_checkpoints_outside_of_shared_storage_are_rejected(tmp_path: Path) -> None:
    key = "topology.stateful.checkpoint.storage"
    prepared(tmp_path, {**STATE, key: "file:///var/lib/heronry/shared/mine"}, tmp_path)
    with pytest.raises(NotAllowed, match=f"{key}: file:///tmp/mine is not seen by all nodes"):
        prepared(tmp_path, {**STATE, key: "file:///tmp/mine"}, tmp_path)


def test_hold_for_logs_is_rejected_before_a_kill(tmp_path: Path) -> None:
    scheduler = SwarmScheduler(
        open_store(f"memory://{tmp_path.name}"), Homes(tmp_path, "swarm"), SwarmOptions(), FakeEngine(Machine(), "h")
    )
    with pytest.raises(NotAllowed, match="keeps no log files"):
        scheduler.hold(LAUNCH)
    scheduler.close()


def test_options_come_from_the_environment(tmp_path: Path) -> None:
    given = {"HERONRY_IMAGE": "i:1", "HERONRY_SWARM_CONSTRAINTS": "node.role==worker, node.labels.disk==ssd"}
    found = SwarmOptions.of_environment({**given, "HERONRY_SWARM_STORAGE": str(tmp_path)})
    assert (found.image, found.constraints, found.storage) == (
        "i:1", ("node.role==worker", "node.labels.disk==ssd"), tmp_path,
    )  # fmt: skip
    assert SwarmOptions.of_environment({}).storage is None
    for path in ("/nowhere/at/all", "relative"):
        with pytest.raises(SchedulerError, match="is not a directory"):
            SwarmOptions.of_environment({"HERONRY_SWARM_STORAGE": path})


def test_swarm_scheduler_is_registered() -> None:
    assert SCHEDULERS.load("swarm").__module__ == "heron_control.schedulers.swarm"
