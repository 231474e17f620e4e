"""One SFTP server for the run."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from sftp_server import SftpServer, sftp_server


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """All that stands here is of the group ``sftp``."""
    here = Path(__file__).parent
    for item in items:
        if item.path.is_relative_to(here):
            item.add_marker(pytest.mark.sftp)


@pytest.fixture(scope="session")
def server() -> Iterator[SftpServer]:
    """A test that kills it starts it again."""
    with sftp_server() as made:
        yield made
