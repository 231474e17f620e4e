"""Fixture of a cluster with two stream managers."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from heron_runtime.model.records import MasterLocation
from heron_runtime.net.identity import identity_of
from heron_runtime.state import open_store, paths
from heron_runtime.state.store import Create
from heron_runtime.wire.message_codecs import MASTER_LOCATION
from tests.support.stream_manager_client import TestMaster, make_launch
from tests.support.stream_manager_pair import TOPOLOGY_ID, StreamManagerPair


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[StreamManagerPair]:
    launch = make_launch(tmp_path / "h", TOPOLOGY_ID)
    master = TestMaster(identity_of(launch))
    await master.start()
    store = open_store(launch.store_url)
    store.open()
    location = MasterLocation(TOPOLOGY_ID, "127.0.0.1", master.port, 1)
    store.commit([Create(paths.master("t"), MASTER_LOCATION.encode(location), ephemeral=True)])
    made = StreamManagerPair(launch, master)
    for container in (1, 2):
        await made.start_manager(container)
    await made.plan()
    yield made
    for instance in made.instances:
        await instance.close()
    for manager in made.managers.values():
        manager.core.check()
        await manager.stop()
    await master.stop()
    store.close()
