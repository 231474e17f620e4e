"""Fixtures of one two-node Kubernetes cluster for all tests here; it ends after them."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.clusters.kubernetes import K8sCluster
from tests.support.clusters.kubernetes_nodes import K8sNodes


@pytest.fixture(scope="session")
def nodes() -> Iterator[K8sNodes]:
    """Yield the nodes; SIGTERM also removes them."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    made = K8sNodes()
    try:
        made.up()
        made.lap("two nodes are ready")
        yield made
    finally:
        made.down()


@pytest.fixture(scope="session")
def cluster(nodes: K8sNodes) -> Iterator[K8sCluster]:
    """Yield a cluster with Heronry's services."""
    made = K8sCluster(nodes)
    try:
        made.up()
        yield made
    finally:
        made.down()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Any:
    """Add the state of the cluster to the report of a failure."""
    report = yield
    made = getattr(item, "funcargs", {}).get("cluster") or getattr(item, "funcargs", {}).get("nodes")
    if report.when in ("call", "setup") and report.failed and made is not None:
        report.sections.append(("the cluster", made.explain()))
    return report
