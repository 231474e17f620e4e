"""One Slurm for the run."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from slurm_servers import SlurmServers, slurm_servers


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """All that stands here is of the group ``slurm``."""
    here = Path(__file__).parent
    for item in items:
        if item.path.is_relative_to(here):
            item.add_marker(pytest.mark.slurm)


@pytest.fixture(scope="session")
def servers() -> Iterator[SlurmServers]:
    """A test that kills one of its daemons starts it again."""
    with slurm_servers() as made:
        yield made
