"""Fixtures of the state-store tests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from state_worlds import WORLDS, World

from heron_runtime.state.store import StateStore


@pytest.fixture(params=sorted(WORLDS))
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    """Every store in turn."""
    made = WORLDS[request.param](tmp_path)
    yield made
    for client in made.clients:
        client.close()


@pytest.fixture
def store(world: World) -> StateStore:
    """A client of every store in turn."""
    return world.client()
