"""One PostgreSQL server for the run; a home of its own for topologies."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from front_door import FrontDoor, front_door
from one_server import serving
from postgres_server import PostgresServer


@pytest.fixture(scope="session")
def server() -> Iterator[PostgresServer]:
    """A test that kills it starts it again."""
    with serving(PostgresServer) as made:
        yield made


@pytest.fixture(scope="module")
def door(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FrontDoor]:
    """One home for the tests of a file; nothing of any topology may be left at the end."""
    with front_door(tmp_path_factory.mktemp("door")) as made:
        yield made
