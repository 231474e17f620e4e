"""Servers for the ZooKeeper tests: one for the whole run, and an ensemble where a test asks for it."""

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
    """One server that nobody kills."""
    made = Ensemble(tmp_path_factory.mktemp("zookeeper"))
    made.start()
    yield made
    made.kill()


@pytest.fixture(scope="module")
def ensemble(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ensemble]:
    """Three servers; a test may kill one, and starts it again."""
    made = Ensemble(tmp_path_factory.mktemp("ensemble"), 3)
    made.start()
    yield made
    made.kill()


@pytest.fixture
def root() -> str:
    """A root of its own for each test."""
    return f"/test{next(_numbers)}"


@pytest.fixture
def world(server: Ensemble, root: str) -> Iterator[ZookeeperStoreClients]:
    """Clients of one tree on the server."""
    made = ZookeeperStoreClients(server.hosts, root)
    yield made
    for client in made.clients:
        client.close()


@pytest.fixture
def store(world: ZookeeperStoreClients) -> StateStore:
    """A client."""
    return world.client()
