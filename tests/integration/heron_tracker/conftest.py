"""Fixtures of a files store with a stub topology, and of a tracker process that follows it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from heron_runtime.state import open_store
from heron_runtime.state.store import StateStore
from tests.support.stub_topology import StubTopology
from tests.support.tracker_process import TrackerProcess, tracker
from tests.support.waiting import wait_until

PLACE = {"cluster": "local", "environ": "default", "topology": "WordCount"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("tracker")


@pytest.fixture(scope="module")
def store(folder: Path) -> Iterator[StateStore]:
    opened = open_store(f"files://{folder}/state")
    opened.open()
    yield opened
    opened.close()


@pytest.fixture(scope="module")
def played(store: StateStore, folder: Path) -> Iterator[StubTopology]:
    topology = StubTopology(store, folder)
    topology.report()
    yield topology
    topology.close()


@pytest.fixture(scope="module")
def rest(played: StubTopology, folder: Path) -> Iterator[TrackerProcess]:
    with tracker("--cluster", f"local=files://{folder}/state", log=folder / "tracker.log") as process:
        wait_until(lambda: process.raw("/readyz")[0] == 200)
        yield process
