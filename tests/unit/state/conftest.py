"""Fixtures of the state-store tests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from heron_runtime.state.store import StateStore
from tests.support.stores.local import STORES, StoreClients


@pytest.fixture(params=sorted(STORES))
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[StoreClients]:
    """Yield clients of each store in turn."""
    made = STORES[request.param](tmp_path)
    yield made
    for client in made.clients:
        client.close()


@pytest.fixture
def store(world: StoreClients) -> StateStore:
    """Return a client of each store in turn."""
    return world.client()
