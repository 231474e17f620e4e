"""Fixtures of one swarm of three engines for all tests here; removed at the end."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.clusters.swarm import SwarmCluster
from tests.support.clusters.swarm_nodes import SwarmNodes


@pytest.fixture(scope="session")
def nodes() -> Iterator[SwarmNodes]:
    """Yield the nodes; SIGTERM also removes them."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    made = SwarmNodes()
    try:
        made.up()
        made.lap("the swarm is up")
        yield made
    finally:
        made.down()


@pytest.fixture(scope="session")
def cluster(nodes: SwarmNodes) -> SwarmCluster:
    """Return the running cluster with a logged-in user."""
    made = SwarmCluster(nodes)
    made.up()
    return made


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Any:
    """Add the state of the swarm to the report of a failure."""
    report = yield
    made = getattr(item, "funcargs", {}).get("cluster")
    if report.when in ("call", "setup") and report.failed and isinstance(made, SwarmCluster):
        report.sections.append(("the swarm", made.explain()))
    return report
