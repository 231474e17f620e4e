"""Tests of every store on a real server: the contract, random transactions against a model, topologies."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test

from heron_runtime.state.zookeeper import ZookeeperStore
from tests.support.servers.zookeeper import Ensemble
from tests.unit.state.test_state_machine import StoreMachine
from tests.unit.state.test_store_contract import *  # noqa: F403
from tests.unit.state.test_topologies import *  # noqa: F403


def test_store_behaves_like_the_model(server: Ensemble) -> None:
    def make(machine: Any) -> ZookeeperStore:
        return ZookeeperStore(server.hosts, root=f"/{Path(machine.folder).name}")

    run_state_machine_as_test(
        type("ZookeeperMachine", (StoreMachine,), {"make": make}),
        settings=settings(
            max_examples=15, stateful_step_count=12, deadline=None, suppress_health_check=list(HealthCheck)
        ),
    )
