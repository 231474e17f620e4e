"""Fixture of one SFTP server for the run."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.server_process import running_server
from tests.support.servers.sftp import SftpServer


@pytest.fixture(scope="session")
def server() -> Iterator[SftpServer]:
    """Yield the server; a test that kills it restarts it."""
    with running_server(SftpServer) as made:
        yield made
