"""Fixture of one Slurm cluster for the run."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.servers.slurm import SlurmServers, slurm_servers


@pytest.fixture(scope="session")
def servers() -> Iterator[SlurmServers]:
    """Yield the cluster; a test that kills a daemon restarts it."""
    with slurm_servers() as made:
        yield made
