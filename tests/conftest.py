"""What holds for every test: Hypothesis judges laws, not the speed of the machine, and laws have their time. Where a
mutation has to break a law, any example that does is as good as the shortest one, so none is looked for."""

from __future__ import annotations

import itertools
import signal
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from budget import Budget
from hypothesis import HealthCheck, Phase, settings

COLLECTED = pytest.StashKey[int]()
_numbers = itertools.count()
USED = "_hypothesis_internal_use_settings"  # where Hypothesis keeps a law's settings
LAW_FLOOR = 10  # examples
#: In the names of tests whose laws have to fail.
BROKEN = ("notice", "mutation", "rule_is_needed", "law_catches", "laws_can_fail")
SLOW_SECS = 900  # under load, or when images are built first
#: Folders whose tests are of the group of that name; those of these groups may take so long.
GROUPS = ("integration", "sim", "browser", "zookeeper", "postgres", "redis", "sftp", "brokers", "slurm")
SLOW_GROUPS = ("faults", "docker", "swarm", "k8s", "spark")
LAWS = Budget(120.0, 0)  # of each process that runs tests

settings.register_profile("heronry", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("heronry")

# A shell starts background jobs with SIGINT ignored, and children inherit that; the tests of Ctrl-C need it to work.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_itemcollected(item: pytest.Item) -> None:
    """Remember the order of collection; what stands in the folder of a group is of that group."""
    item.stash[COLLECTED] = next(_numbers)
    group = item.path.relative_to(Path(__file__).parent).parts[0]
    if group in (*GROUPS, *SLOW_GROUPS):
        item.add_marker(group)
    if group in SLOW_GROUPS:
        item.add_marker(pytest.mark.timeout(SLOW_SECS))


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests come in random order; those that share real processes keep the order of their module among each other."""
    places: dict[Path, list[int]] = {}
    for place, item in enumerate(items):
        if "integration" in item.path.parts:
            places.setdefault(item.path, []).append(place)
    for mine in places.values():
        ordered = sorted((items[place] for place in mine), key=lambda item: item.stash[COLLECTED])
        for place, item in zip(mine, ordered, strict=True):
            items[place] = item


def _any_example(chosen: Any) -> tuple[Phase, ...]:
    return tuple(phase for phase in chosen._phases if phase not in (Phase.shrink, Phase.explain))


@pytest.fixture(autouse=True)
def _no_shortest_example(request: pytest.FixtureRequest) -> Iterator[None]:
    """Hypothesis gives what it has found first where a law has to fail."""
    if not any(word in request.node.name for word in BROKEN):
        yield
        return
    before = vars(settings)["phases"]
    type.__setattr__(settings, "phases", property(_any_example))  # the class refuses it by its own way
    try:
        yield
    finally:
        type.__setattr__(settings, "phases", before)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[Any]:
    """Laws try as many examples as they say until the seconds of all laws are used up, and then only the floor."""
    function = getattr(item, "function", None)
    chosen = getattr(function, USED, None)
    if chosen is None:
        return (yield)
    if not LAWS.more():
        setattr(function, USED, settings(chosen, max_examples=min(chosen.max_examples, LAW_FLOOR)))
    began = time.monotonic()
    try:
        return (yield)
    finally:
        LAWS.spend(time.monotonic() - began)
        setattr(function, USED, chosen)


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Say how much was tried of what goes on by time."""
    tried: Counter[str] = Counter()
    for reports in terminalreporter.stats.values():
        for report in reports:
            if getattr(report, "when", "") == "call":
                tried.update({name: n for name, n in report.user_properties if isinstance(n, int)})
    for name, number in sorted(tried.items()):
        terminalreporter.write_line(f"{number:,} {name} tried")
