"""Slow bolts with a spout that emits whenever it is asked: few tuples are queued, and none times out.

The bounds are the defaults: in bytes they would admit hours of work. The test compares numbers of tuples, emitted and
done, never times.
"""

from __future__ import annotations

import time

import pytest

from benchmarks.cluster import Cluster
from tests.support.waiting import wait_until

BOLT_SECONDS = 0.2
TIMEOUT_SECONDS = 30
MOST_WAITING = int(TIMEOUT_SECONDS / 2 / BOLT_SECONDS)  # half a timeout of work; about 12 are usual
WARM_UP_TUPLES, TUPLES = 20, 60


@pytest.mark.parametrize(
    ("mode", "bolts", "size"),
    [("ATMOST_ONCE", 1, 30), ("ATMOST_ONCE", 2, 30_000), ("ATLEAST_ONCE", 1, 30_000), ("ATLEAST_ONCE", 2, 30)],
)
def test_queue_of_slow_bolts_is_limited_to_seconds_of_work(mode: str, bolts: int, size: int) -> None:
    cluster = Cluster()
    home = cluster.home
    try:
        config = {
            "topology.reliability.mode": mode, "topology.message.timeout.secs": TIMEOUT_SECONDS,
            "user.size": size, "user.folder": str(home),
        }  # fmt: skip
        arguments = {"name": cluster.name, "seconds": [BOLT_SECONDS] * bolts, "config": config}
        cluster.submit(arguments, {}, "tests/faults/slow_topology.py")

        def lines(name: str) -> list[str]:
            return (home / name).read_text().splitlines() if (home / name).exists() else []

        wait_until(lambda: len(lines("done")) >= WARM_UP_TUPLES, "the bolts are warm")
        most = 0
        while (done := len(lines("done"))) < TUPLES:  # a bolt that starves would run into the test's own timeout
            most = max(most, int((home / "emitted").read_text()) - done)
            time.sleep(0.1)
        assert most <= MOST_WAITING, f"{most} tuples wait for bolts of {BOLT_SECONDS} s"
        assert most >= 2, "the bolts always have the next tuple at hand"
        if mode == "ATLEAST_ONCE":
            wait_until(lambda: len(lines("settled")) >= TUPLES, "every tuple is settled")
            assert all(line.endswith(" acked") for line in lines("settled")[:TUPLES]), "nothing has failed"
    finally:
        cluster.close()
