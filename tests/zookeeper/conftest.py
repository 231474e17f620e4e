"""Fixtures of ZooKeeper servers: one for the whole run, and an ensemble on demand."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest

from heron_runtime.state.store import StateStore
from tests.support.servers.zookeeper import Ensemble
from tests.support.stores.zookeeper import ZookeeperStoreClients

_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ensemble]:
    """Yield one server that tests do not kill."""
    made = Ensemble(tmp_path_factory.mktemp("zookeeper"))
    made.start()
    yield made
    made.kill()


@pytest.fixture(scope="module")
def ensemble(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ensemble]:
    """Yield three servers; a test may kill one, and restarts it."""
    made = Ensemble(tmp_path_factory.mktemp("ensemble"), 3)
    made.start()
    yield made
    made.kill()


@pytest.fixture
def root() -> str:
    """Return a separate root for each test."""
    return f"/test{next(_numbers)}"


@pytest.fixture
def world(server: Ensemble, root: str) -> Iterator[ZookeeperStoreClients]:
    """Yield clients of one tree on the server."""
    made = ZookeeperStoreClients(server.hosts, root)
    yield made
    for client in made.clients:
        client.close()


@pytest.fixture
def store(world: ZookeeperStoreClients) -> StateStore:
    """Return a client."""
    return world.client()
