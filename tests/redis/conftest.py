"""One Redis server for the run; a home of its own for topologies."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.heron_command import HeronCommand, heron_command
from tests.support.server_process import running_server
from tests.support.servers.redis import RedisServer


@pytest.fixture(scope="session")
def server() -> Iterator[RedisServer]:
    """A test that kills it starts it again."""
    with running_server(RedisServer) as made:
        yield made


@pytest.fixture(scope="module")
def heron(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HeronCommand]:
    """One home for the tests of a file; nothing of any topology may be left at the end."""
    with heron_command(tmp_path_factory.mktemp("home")) as made:
        yield made
