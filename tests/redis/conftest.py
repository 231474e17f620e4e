"""Fixtures of one Redis server for the run, and of a home for topologies."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.heron_command import HeronCommand, heron_command
from tests.support.server_process import running_server
from tests.support.servers.redis import RedisServer


@pytest.fixture(scope="session")
def server() -> Iterator[RedisServer]:
    """Yield the server; a test that kills it restarts it."""
    with running_server(RedisServer) as made:
        yield made


@pytest.fixture(scope="module")
def heron(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HeronCommand]:
    """Yield a command whose home the tests of a file share; no topology process may be left at the end."""
    with heron_command(tmp_path_factory.mktemp("home")) as made:
        yield made
