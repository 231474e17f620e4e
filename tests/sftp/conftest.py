"""One SFTP server for the run."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from one_server import serving
from sftp_server import SftpServer


@pytest.fixture(scope="session")
def server() -> Iterator[SftpServer]:
    """A test that kills it starts it again."""
    with serving(SftpServer) as made:
        yield made
