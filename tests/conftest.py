"""Pytest configuration: Hypothesis profiles, markers by folder, order of integration tests."""

from __future__ import annotations

import itertools
import signal
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

COLLECTED = pytest.StashKey[int]()
_numbers = itertools.count()
SLOW_SECONDS = 900  # under load, or when images are built first
#: Folders of ``tests/`` whose tests carry the marker of that name.
GROUPS = ("integration", "sim", "browser", "zookeeper", "postgres", "redis", "sftp", "brokers", "slurm")
SLOW_GROUPS = ("faults", "docker", "swarm", "k8s", "spark")

# The number of examples is fixed, so that a slow machine tests as much as a quick one. `--hypothesis-profile` chooses.
_ANY = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow]}
settings.register_profile("ci", max_examples=25, derandomize=True, **_ANY)
settings.register_profile("default", max_examples=100, **_ANY)
settings.register_profile("thorough", max_examples=1000, **_ANY)
settings.load_profile("default")

# A shell starts background jobs with SIGINT ignored, and children inherit that; the tests of Ctrl-C need it to work.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_itemcollected(item: pytest.Item) -> None:
    """Remember the order of collection, and mark a test with the group of its folder."""
    item.stash[COLLECTED] = next(_numbers)
    group = item.path.relative_to(Path(__file__).parent).parts[0]
    if group in (*GROUPS, *SLOW_GROUPS):
        item.add_marker(group)
    if group in SLOW_GROUPS:
        item.add_marker(pytest.mark.timeout(SLOW_SECONDS))


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run tests in random order; tests that share real processes keep the order of their module among each other."""
    places: dict[Path, list[int]] = {}
    for place, item in enumerate(items):
        if "integration" in item.path.parts:
            places.setdefault(item.path, []).append(place)
    for mine in places.values():
        ordered = sorted((items[place] for place in mine), key=lambda item: item.stash[COLLECTED])
        for place, item in zip(mine, ordered, strict=True):
            items[place] = item


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Print the totals of the values that tests recorded with ``record_property``."""
    tried: Counter[str] = Counter()
    for reports in terminalreporter.stats.values():
        for report in reports:
            if getattr(report, "when", "") == "call":
                tried.update({name: n for name, n in report.user_properties if isinstance(n, int)})
    for name, number in sorted(tried.items()):
        terminalreporter.write_line(f"{number:,} {name} tried")
