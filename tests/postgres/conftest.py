"""One PostgreSQL server for the run; a home of its own for topologies."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from front_door import FrontDoor, front_door
from postgres_server import PostgresServer, postgres_server


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """All that stands here is of the group ``postgres``."""
    here = Path(__file__).parent
    for item in items:
        if item.path.is_relative_to(here):
            item.add_marker(pytest.mark.postgres)


@pytest.fixture(scope="session")
def server() -> Iterator[PostgresServer]:
    """A test that kills it starts it again."""
    with postgres_server() as made:
        yield made


@pytest.fixture(scope="module")
def door(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FrontDoor]:
    """One home for the tests of a file; nothing of any topology may be left at the end."""
    with front_door(tmp_path_factory.mktemp("door")) as made:
        yield made
