"""One Slurm for the run."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.servers.slurm import SlurmServers, slurm_servers


@pytest.fixture(scope="session")
def servers() -> Iterator[SlurmServers]:
    """A test that kills one of its daemons starts it again."""
    with slurm_servers() as made:
        yield made
