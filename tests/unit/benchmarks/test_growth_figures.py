"""What the benchmarks of growth compute: the parts of a cost, and counters of the kernel and of ZooKeeper."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks import growth_hosts, growth_idle
from benchmarks.fit import Fit, fit
from benchmarks.hosts import Traffic, address, traffic_in
from benchmarks.zookeeper_server import figures_in

parts = st.floats(0.01, 100)


@given(parts, parts, parts)
def test_a_cost_of_three_parts_is_taken_apart(fixed: float, each: float, pair: float) -> None:
    true = Fit(fixed, each, pair)
    found = fit([(k, true.at(k)) for k in (2, 4, 8, 16, 32)])
    assert found.at(200) == pytest.approx(true.at(200), rel=1e-6)
    assert (found.fixed, found.each, found.pair) == pytest.approx((fixed, each, pair), rel=1e-4, abs=1e-4)
    assert found.worst < 1e-6
    assert sum(found.parts(200)) == pytest.approx(found.at(200))


def test_no_part_is_negative_and_what_is_off_is_told() -> None:
    found = fit([(2, 10.0), (4, 20.0), (8, 39.0), (16, 76.0)])
    assert min(found.parts(1000)) >= 0
    assert found.pair == 0.0
    assert found.each == pytest.approx(4.8, abs=0.3)
    assert 0 < found.worst < 0.05


def test_two_numbers_of_containers_are_too_few() -> None:
    with pytest.raises(ValueError, match="three different numbers"):
        fit([(2, 1.0), (4, 2.0), (4, 2.1)])


NET_DEV = """\
Inter-|   Receive
 face |bytes    packets errs drop fifo frame compressed multicast
    lo:    9000      90    0    0    0     0          0
   hub:     500       5    0    0    0     0          0
 host0:    1000      10    0    0    0     0          0
host12:    2000      20    0    0    0     0          0
hostile0:  7777      77    0    0    0     0          0
"""


def test_what_the_hosts_send_is_what_their_cables_bring_to_the_bridge() -> None:
    found = traffic_in(NET_DEV)
    assert found == Traffic(packets=30, bytes=3000, hub_packets=5, hub_bytes=500)
    assert found.since(Traffic(10, 1000, 1, 100)) == Traffic(20, 2000, 4, 400)


def test_each_host_has_an_address_of_its_own() -> None:
    found = [address(number) for number in range(1000)]
    assert len(set(found)) == 1000
    assert all(int(part) < 255 for text in found for part in text.split("."))


def test_figures_of_zookeeper_are_numbers() -> None:
    answer = "zk_version\t3.9.4-x, built on 2025\nzk_znode_count\t27\nzk_avg_latency\t0.25\nno tab\n"
    assert figures_in(answer) == {"znode_count": 27.0, "avg_latency": 0.25}
    assert figures_in("") == {}


def run_of(containers: int) -> dict[str, object]:
    cores = {"stream_manager": 0.001 * containers * (containers - 1), "spout": 0.003 * containers}
    return {
        "containers": containers, "cores": sum(cores.values()), "cores_by_kind": cores, "packets": 5.0 * containers**2,
        "bytes": 100.0 * containers, "store_requests": 4.0 * containers, "startup_s": 3.0, "memory_mb": 70 * containers,
        "load": 1.0,
    }  # fmt: skip


def test_the_table_says_what_200_containers_would_cost() -> None:
    lines = growth_idle.fits([run_of(k) for k in (2, 4, 8)], 200)
    cpu = next(line for line in lines if line.startswith("| CPU |"))
    assert "| 40,400 ms/s | 99% |" in cpu
    assert next(line for line in lines if line.startswith("| bytes")).endswith("| 20,000 /s | 0% |")


def test_a_tuple_costs_what_comes_on_top_of_an_idle_topology() -> None:
    idle = {"cores": 0.1, "packets": 100.0, "bytes": 1000.0}
    late = {"p50": 5.0, "p99": 20.0}
    loaded = {"tuples_per_second": 400.0, "cores": 0.5, "packets": 500.0, "bytes": 41_000.0, "load": 2.0}
    found = growth_hosts.row(4, {**loaded, "complete_latency_ms": late}, idle)
    assert found == "| 4 | 400 | 1250 | 1000 | 1.25 | 1.00 | 102 | 5 / 20 | 0.50 | 2.0 |"
