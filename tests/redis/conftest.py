"""One Redis server for the run; a home of its own for topologies."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from front_door import FrontDoor, front_door
from redis_server import RedisServer, redis_server


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """All that stands here is of the group ``redis``."""
    here = Path(__file__).parent
    for item in items:
        if item.path.is_relative_to(here):
            item.add_marker(pytest.mark.redis)


@pytest.fixture(scope="session")
def server() -> Iterator[RedisServer]:
    """A test that kills it starts it again."""
    with redis_server() as made:
        yield made


@pytest.fixture(scope="module")
def door(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FrontDoor]:
    """One home for the tests of a file; nothing of any topology may be left at the end."""
    with front_door(tmp_path_factory.mktemp("door")) as made:
        yield made
