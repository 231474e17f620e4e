"""A sink that is a hundred times too slow: backpressure names it, memory stays bounded, all lines arrive.

The lines are padded, so that without a bound some hundred MiB would pile up within seconds. Every bound is set low. The
limit of a stream manager follows from the formula of ``stream_manager/core/credit.py``, that of an instance from the
capacities of its queues.
"""

from __future__ import annotations

import time
from typing import Any

import pytest

from stream_manager.core.credit import memory_bound
from tests.support.fault_cluster import TEXT, FaultCluster, MiB, fault_cluster
from tests.support.fault_ledger import Text, all_acked, progress
from tests.support.waiting import wait_until

HIGH, WINDOW, CAPACITY, LARGEST_FRAME = 1 * MiB, 1 * MiB, 1 * MiB, 1 * MiB
PADDING_BYTES = 1000  # of each line and each word
SLOW_SECONDS = 10.0  # how long memory is observed; without a bound the source alone would add tens of MiB per second
SLACK_BYTES = 24 * MiB  # of a process that starts to work: allocator, gRPC's buffers, tables of roots and ids
CONFIG: dict[str, Any] = {
    "topology.message.timeout.secs": 600,
    "topology.max.spout.pending": 100_000,
    "topology.backpressure.high.watermark.bytes": HIGH,
    "topology.backpressure.low.watermark.bytes": HIGH // 2,
    "topology.instance.data.in.capacity.bytes": CAPACITY,
    "topology.instance.data.out.capacity.bytes": CAPACITY,
}
SETTINGS = {"heron.streammgr.upload.window.bytes": WINDOW, "heron.streammgr.peer.window.bytes": WINDOW}


def stream_manager_bound(instances: int, peers: int, destinations: int) -> int:
    """Return the maximum size of all queues of one stream manager together."""
    return destinations * memory_bound(HIGH, WINDOW, WINDOW, LARGEST_FRAME, instances, peers)


def instance_bound() -> int:
    """Return the maximum of data-in and data-out, each with an extra batch, and of the current batch in both forms."""
    return 2 * (CAPACITY + LARGEST_FRAME) + 2 * LARGEST_FRAME


@pytest.mark.parametrize("mode", ["ATLEAST_ONCE", "ATMOST_ONCE"])
@pytest.mark.parametrize("containers", [1, 2])
def test_slow_bolt_causes_backpressure_with_bounded_memory(containers: int, mode: str) -> None:
    config = {**CONFIG, "topology.reliability.mode": mode}
    with fault_cluster(
        containers, config=config, settings=SETTINGS, padding=PADDING_BYTES, deactivated=True
    ) as cluster:
        before = cluster.rss()  # no data has flowed yet
        assert len(before) == containers + sum(cluster.tasks.values())
        cluster.heron("activate", "local", cluster.name)
        cluster.wait_for_flow(1.0)
        (cluster.output / "slow").touch()
        # The source runs at full speed, so the splitter may also be named at times.
        wait_until(lambda: sink_is_named(cluster), "heron status says that spouts wait for the sink", poll=0.5)
        began = time.monotonic()
        growth: dict[str, int] = {}
        while time.monotonic() - began < SLOW_SECONDS:  # the observation itself takes this long
            for name, rss in cluster.rss().items():
                growth[name] = max(growth.get(name, 0), rss - before.get(name, rss))
            time.sleep(0.2)
        for name, grown in sorted(growth.items()):
            bound = bound_of(name, cluster)
            print(f"{name:<24} grew by {grown / MiB:6.1f} MiB, bound {bound / MiB:6.1f} MiB + {SLACK_BYTES / MiB:.0f}")
            assert grown <= bound + SLACK_BYTES, f"{name} grew by {grown / MiB:.1f} MiB"
        assert sink_is_named(cluster), "it is still slow"
        (cluster.output / "slow").unlink()
        wait_until(lambda: not sink_is_named(cluster), "nobody waits for the sink any more", poll=0.5)
        cluster.wait_for_more(MiB // 4)
        (cluster.output / "end").touch()
        wait_until(lambda: all_acked(cluster.output, cluster.tasks["lines"]), "the source has ended")
        wait_until(lambda: not pressure(cluster), "backpressure ends", poll=0.5)
        text = Text(TEXT)
        account = wait_until(lambda: complete(cluster, text), "all is written", poll=0.5)
        print(f"{mode}, {containers} containers: {account}")
        assert (account.again, account.failed) == (0, {}), account
        assert all(p["starts"] == 1 for p in progress(cluster.output).values())
        assert all(p["restarts"] == 0 for p in cluster.processes().values())


def complete(cluster: FaultCluster, text: Text) -> Any:
    """Return the account once no line is missing: without acks, words are in flight when the source ends."""
    account = text.account(cluster.output)
    assert (account.wrong, account.unknown) == (0, 0), account
    return account if account.complete() else None


def bound_of(name: str, cluster: FaultCluster) -> int:
    """Return the formula's bound for this process, with the tasks and containers of this topology."""
    tasks = sum(cluster.tasks.values())
    if not name.startswith("stream_manager"):
        return instance_bound()
    # In the worst case all tasks are local, and each is a destination.
    return stream_manager_bound(tasks, cluster.containers - 1, tasks)


def sink_is_named(cluster: FaultCluster) -> bool:
    """Return True if ``heron status`` names a task of the sink as the cause of backpressure."""
    tasks = [p["task"] for p in cluster.processes().values() if p["component"] == "sink"]
    said = pressure(cluster)
    return any(f"sink task {task} (seen in container " in said for task in tasks)


def pressure(cluster: FaultCluster) -> str:
    """Return the backpressure message of ``heron status``, or an empty string."""
    said = cluster.say("status", "local", cluster.name)
    return said[said.index("backpressure:") :] if "backpressure:" in said else ""
