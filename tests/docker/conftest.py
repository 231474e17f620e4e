"""Fixtures of one Docker Compose cluster for all tests here, with three ZooKeeper servers and Prometheus.

The cluster is removed at the end. Parts of ``tests/faults`` (the ledger, the components) are also used here.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from typing import Any

import pytest

from tests.docker import docker_fault_table
from tests.support.clusters.compose import ComposeCluster


@pytest.fixture(scope="session")
def cluster() -> Iterator[ComposeCluster]:
    """Yield the running cluster with a logged-in user; SIGTERM also removes the cluster."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    made = ComposeCluster("--env-file", "deploy/ensemble.env", "--profile", "ensemble", "--profile", "monitoring")
    try:
        made.up()
        made.lap("the cluster is up")
        made.login()
        yield made
        made.down()
        made.lap("the cluster is down")
    finally:
        made.close()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Any:
    """Add the output of the engine and the containers to the report of a failure."""
    report = yield
    made = getattr(item, "funcargs", {}).get("cluster")
    if report.when == "call" and report.failed and isinstance(made, ComposeCluster):
        report.sections.append(("the cluster", made.explain()))
    return report


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Print the table of faults."""
    if docker_fault_table.ROWS:
        terminalreporter.section("faults of containers survived")
        for line in docker_fault_table.table():
            terminalreporter.write_line(line)
