"""Totals of a finite topology equal the true values in every interface that serves them.

The tests read the tracker (all time, 10 minutes, 1 hour, 3 hours, time lines and queries), the Prometheus endpoints and
the JSON lines while the topology is at rest. Every counter of any process must be one of three kinds: its total is
known (``known_totals_topology``), it obeys an invariant (tuples sent are received), or it measures the process itself
(CPU, time) and has no true value. A counter that is none of these fails the test.
"""

from __future__ import annotations

import json
import time
import urllib.request
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from heron_runtime.model.metrics import MetricKind, base_name, prometheus_name
from tests.integration.front_door import known_totals_topology
from tests.integration.front_door.known_totals_topology import MEASURED, TRUTH
from tests.support.heron_command import HeronCommand, unique
from tests.support.tracker_process import TrackerProcess, tracker
from tests.support.waiting import wait_until, wait_until_equal

pytestmark = pytest.mark.timeout(600)
INTERVALS = (-1, 600, 3600, 10_800)
# Counters about the process, the machine or the clock. They increase while the topology is at rest.
OF_THE_PROCESS = {
    "__py-user-cpu-time-secs", "__py-sys-cpu-time-secs", "__process/__cpu_user_usec", "__process/__cpu_system_usec",
    "__py-generation-1-collections", "__py-generation-2-collections", "__py-generation-3-collections", "__gc-time-ms",
    "__busy-time-ms", "__idle-time-ms", "__backpressured-time-ms", "__execute-time-ns", "__next-tuple-count",
    "__reports-received", "__reports-refused", "__sink-records", "__sink-failures", "__sink-dropped", "__restarts",
    "__plans_made", "__mastership_changes", "__late_acks", "__out-queue-full-count", "__back_pressure_starts",
    "__server/__time_spent_back_pressure_initiated", "__server/__time_spent_back_pressure_aggr",
    "__time_spent_back_pressure_by_compid", "__tuple-serialization-time-ns", "__tuple-deserialization-time-ns",
}  # fmt: skip
# Tuples that one side sends and the other receives: (component, sent, component, received).
LAWS = (
    ("*", "__gateway-sent-packets-count", "__stmgr__", "__server/__packets_from_workers"),
    ("*", "__gateway-sent-packets-size", "__stmgr__", "__server/__bytes_from_workers"),
    ("__stmgr__", "__server/__packets_to_workers", "*", "__gateway-received-packets-count"),
    ("__stmgr__", "__server/__bytes_to_workers", "*", "__gateway-received-packets-size"),
    *(
        ("__stmgr__", f"__server/__{what}_to_stmgrs", "__stmgr__", f"__server/__{what}_from_stmgrs")
        for what in ("tuples", "ack_tuples", "fail_tuples", "bytes", "packets", "frames")
    ),
    ("__stmgr__", "__server/__frames_from_workers", "__stmgr__", "__server/__frames_to_workers"),
)
# Counters of an invariant without a counterpart: acks and fails end in the ack tracker and return as verdicts.
BESIDE = {f"__server/__{what}_{way}_workers" for what in ("ack_tuples", "fail_tuples") for way in ("from", "to")}
Totals = dict[str, dict[str, float]]


def added(into: Totals, component: str, name: str, value: float) -> None:
    metrics = into.setdefault(component, {})
    metrics[name] = metrics.get(name, 0) + value


def by_base(name: str) -> str:
    """Return the name without the remote end: totals are compared over all remote ends together."""
    return base_name(name) if name.startswith("__server/") else name


class Served:
    """Running topology, and every interface that serves its totals."""

    def __init__(self, rest: TrackerProcess, place: dict[str, str], folder: Path) -> None:
        self.rest = rest
        self.place = place
        self.folder = folder  # of the metrics managers
        self.components: dict[str, str] = {}  # component of each instance
        self.kinds: dict[str, dict[str, str]] = {}  # kind by component and name

    def tracker(self, interval: int) -> dict[str, Any]:
        """Return ``/topologies/metrics`` for all components."""
        return dict(self.rest.result("/topologies/metrics", **self.place, component="*", interval=interval))

    def learn(self) -> None:
        """Read the component of each instance and the kind of each metric."""
        for component in (*TRUTH, "__tmanager__", "__metricsmgr__", "__container__", "__scheduler__"):
            answer = self.rest.result("/api/v1/topology/metrics", **self.place, component=component)
            for row in answer["windows"][-1]["metrics"]:
                self.kinds.setdefault(component, {})[row["name"]] = row["kind"]
            metrics = self.rest.result("/topologies/metrics", **self.place, component=component)["metrics"]
            self.components |= {instance: component for found in metrics.values() for instance in found}

    def counters(self, interval: int) -> Totals:
        """Return totals by component and counter, from the tracker."""
        found: Totals = {}
        for name, instances in self.tracker(interval)["metrics"].items():
            for instance, value in instances.items():
                component = self.components.get(instance, "")
                if self.kinds.get(component, {}).get(name) == MetricKind.COUNTER:
                    added(found, component, by_base(name), value)
        return found

    def reports(self) -> Counter[str]:
        """Return how many reports of each process are in the JSON lines."""
        texts = [file.read_text() for file in self.folder.glob("metrics-*.jsonl")]
        return Counter(json.loads(line)["instance"] for text in texts for line in text.splitlines())

    def json_lines(self) -> Totals:
        """Return the totals in the JSON lines: the last line of each incarnation."""
        last: dict[tuple[str, str, int], dict[str, Any]] = {}
        for file in self.folder.glob("metrics-*.jsonl"):
            for text in file.read_text().splitlines():
                line = json.loads(text)
                last[line["component"], line["instance"], line["incarnation"]] = line
        found: Totals = {}
        for (component, _, _), line in last.items():
            for name, value in line["counters"].items():
                added(found, component, by_base(name), value)
        return found

    def scraped(self) -> Iterator[tuple[str, dict[str, str], float]]:
        """Yield every sample of every Prometheus endpoint that the tracker names."""
        targets = json.loads(self.rest.raw("/prometheus/targets")[2])
        assert len(targets) == 3
        for target in targets:
            with urllib.request.urlopen(f"http://{target['targets'][0]}/metrics", timeout=10) as reply:
                text = reply.read().decode()
            for family in text_string_to_metric_families(text):
                for sample in family.samples:
                    yield sample.name, sample.labels, sample.value

    def prometheus(self) -> Totals:
        """Return totals by component and by Prometheus name and stream."""
        found: Totals = {}
        for name, labels, value in self.scraped():
            if name.endswith(("_total", "_count")):
                added(found, labels["component"], f"{name}/{labels['stream']}", value)
        return found


def only(found: Totals, wanted: Totals) -> Totals:
    """Return the part of ``found`` whose keys are in ``wanted``."""
    return {c: {n: found.get(c, {}).get(n, 0) for n in metrics} for c, metrics in wanted.items()}


def in_prometheus(truth: Totals, kind: MetricKind, ending: str = "") -> Totals:
    """Return the true totals by their Prometheus names, without those keyed by the remote end."""
    found: Totals = {}
    for component, metrics in truth.items():
        for name, value in metrics.items():
            if not name.startswith("__server/"):
                translated = prometheus_name(name, kind)
                text = f"{translated.name}{ending}/{translated.labels.get('stream', '')}"
                found.setdefault(component, {})[text] = value
    return found


@pytest.fixture(scope="module")
def served(heron: HeronCommand) -> Iterator[Served]:
    name = unique("KnownTotals")
    heron.submit(name, known_totals_topology.__file__, "KnownTotals")
    launch = heron.submitted[name][0]
    place = {"cluster": "local", "environ": launch["environ"], "topology": name}
    with tracker("--home", str(heron.home), log=heron.folder / "tracker.log") as rest:
        wait_until_equal(lambda: rest.raw("/readyz")[0], 200, "the tracker is ready")
        found = Served(rest, place, Path(launch["home"], "metrics"))
        wait_until_equal(lambda: rest.get("/topologies/metrics", **place, component="*")[0], 200, "the master answers")

        def settled() -> Totals:
            found.learn()
            return only(found.counters(-1), TRUTH)

        wait_until_equal(settled, TRUTH, "every total is the truth")
        wait_until_equal(lambda: _at_rest(found), True, "counters of traffic stand still")
        yield found
        heron.kill(name)
        wait_until_equal(lambda: rest.result("/topologies"), {"local": {}}, "the tracker lists it no more")
        assert rest.get("/topologies/info", **place)[0] == 404


def _at_rest(found: Served) -> bool:
    def traffic() -> Totals:
        return {
            c: {n: v for n, v in metrics.items() if base_name(n) not in OF_THE_PROCESS}
            for c, metrics in found.counters(-1).items()
        }

    before, reports = traffic(), found.reports()
    wait_until(
        lambda: all(found.reports()[instance] >= number + 2 for instance, number in reports.items()),
        "each process to report twice more",
    )
    return traffic() == before and _lawful(found) == []


def _lawful(found: Served) -> list[str]:
    counters, broken = found.counters(-1), []

    def total(component: str, name: str) -> float:
        chosen = [c for c in counters if component in ("*", c)]
        return sum(v for c in chosen for n, v in counters[c].items() if base_name(n) == name)

    for sender, sent, receiver, received in LAWS:
        if total(sender, sent) != total(receiver, received):
            broken.append(f"{sent} {total(sender, sent)} != {received} {total(receiver, received)}")
    return broken


def test_tracker_totals_are_true_for_every_interval(served: Served) -> None:
    for interval in INTERVALS:
        assert only(served.counters(interval), TRUTH) == TRUTH, interval


def test_latencies_count_every_tuple_once(served: Served) -> None:
    for interval in INTERVALS:
        found: Totals = {}
        for name, instances in served.tracker(interval)["percentiles"].items():
            for instance, value in instances.items():
                if instance != "*" and value is not None:
                    added(found, served.components[instance], name, value["count"])
        assert only(found, MEASURED) == MEASURED, interval


def test_time_lines_and_queries_add_up_to_the_true_totals(served: Served) -> None:
    end = int(time.time())
    span = {"starttime": end - 3000, "endtime": end}
    for component in ("numbers", "left", "right", "sink", "watcher"):
        for name, total in TRUTH[component].items():
            line = served.rest.result(
                "/topologies/metrics/timeline", **served.place, component=component, metricname=name, **span
            )["timeline"][name]
            assert sum(v for points in line.values() for v in points.values()) == total, name
            answer = served.rest.result(
                "/topologies/metrics/query", **served.place, query=f"SUM(TS({component}, *, {name}))", **span
            )
            assert sum(answer["timeline"][0]["data"].values()) == total, name


def test_prometheus_totals_are_true(served: Served) -> None:
    for truth, ending, kind in ((TRUTH, "", MetricKind.COUNTER), (MEASURED, "_count", MetricKind.LATENCY)):
        wanted = in_prometheus(truth, kind, ending)
        wait_until_equal(lambda wanted=wanted: only(served.prometheus(), wanted), wanted, "the Prometheus endpoints")  # type: ignore[misc]


def test_json_line_totals_are_true(served: Served) -> None:
    wait_until_equal(lambda: only(served.json_lines(), TRUTH), TRUTH, "the JSON lines")


def test_every_other_counter_obeys_an_invariant_or_measures_the_process(served: Served) -> None:
    assert _lawful(served) == []
    named = {name for law in LAWS for name in (law[1], law[3])} | BESIDE | OF_THE_PROCESS
    unknown = {
        (component, name)
        for component, metrics in served.counters(-1).items()
        for name, value in metrics.items()
        if base_name(name) not in named and name not in TRUTH.get(component, {}) and value
    }
    assert unknown == set()


def test_totals_at_rest_agree_in_all_interfaces(served: Served) -> None:
    rests: Totals = {
        c: {n: v for n, v in metrics.items() if base_name(n) not in OF_THE_PROCESS}
        for c, metrics in served.counters(-1).items()
    }
    assert only(served.json_lines(), rests) == rests
    found: Totals = {}
    for name, labels, value in served.scraped():
        if name.startswith("heron_stmgr_") and name.endswith("_total"):
            added(found, labels["component"], name, value)
    wanted: Totals = {}
    for name, value in rests["__stmgr__"].items():
        translated = prometheus_name(name, MetricKind.COUNTER)
        if translated.name.startswith("heron_stmgr_"):
            added(wanted, "__stmgr__", translated.name, value * translated.scale)
    assert only(found, wanted) == wanted


def test_page_shows_every_process_with_its_memory(served: Served) -> None:
    shown = served.rest.result("/api/v1/topology", **served.place)
    assert (shown["state"], shown["master_answers"]) == ("running", True)
    processes = {p["name"]: p for c in shown["container_list"] for p in c["processes"]}
    instances = {instance for instance, component in served.components.items() if component in TRUTH}
    assert {"heron_scheduler", "topology_master-0", "heron_container-2", *instances} <= set(processes)
    assert processes["stream_manager-1"]["memory"] > 1_000_000
    registered = served.rest.result("/topologies/runtimestate", **served.place)["stmgrs"]
    assert registered == {f"stmgr-{number}": {"is_registered": True} for number in (1, 2)}


def test_pid_stacks_and_log_of_an_instance(served: Served) -> None:
    (instance,) = (name for name, component in served.components.items() if component == "numbers")
    pid = served.rest.result("/topologies/pid", **served.place, instance=instance)["pid"]
    assert instance.encode() in Path(f"/proc/{pid}/cmdline").read_bytes()

    def stacks() -> str | None:
        status, body = served.rest.get("/topologies/jstack", **served.place, instance=instance)
        return body["result"]["stdout"] if status == 200 else None

    text = wait_until(stacks, "the stacks of the instance")
    assert "most recent call first" in text
    assert "known_totals_topology.py" in text or "heron_instance" in text
    file = {"container": instance.split("_")[1], "path": f"{instance}.log", "offset": -20_000, "length": 20_000}
    log = served.rest.result("/topologies/container/filedata", **served.place, **file)
    assert "most recent call first" in log["data"]
    assert Path(f"/proc/{pid}").exists(), "it survives"
