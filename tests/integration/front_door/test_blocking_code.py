"""Blocking user code in real processes: its emits and acks are delivered meanwhile, and the status reports it."""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.integration.front_door import blocking_topology as user
from tests.support.heron_command import HeronCommand, heron_command, json_lines, unique
from tests.support.waiting import wait_until


@dataclass
class Run:
    """Running topology and the records of its tasks."""

    heron: HeronCommand
    name: str
    folder: Path

    def diary(self, component: str) -> list[dict[str, Any]]:
        """Return the records of the tasks of a component."""
        return [line for file in sorted(self.folder.glob(f"{component}*.jsonl")) for line in json_lines(file)]

    def arrivals(self, kind: str) -> list[dict[str, Any]]:
        """Return when tuples of this kind were emitted and arrived."""
        return [line for line in self.diary("sink") if line["kind"] == kind]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    """Yield the topology, shared by all tests of this file. It must stop when killed, endless loops included."""
    folder = tmp_path_factory.mktemp("blocking")
    with heron_command(folder) as heron:
        found = Run(heron, unique("Blocking"), folder)
        heron.submit(found.name, user.__file__, "Blocking", "--", str(folder))
        yield found
        heron.kill(found.name)


def test_spout_that_never_returns_delivers_tuples_and_gets_acks(run: Run) -> None:
    arrived = wait_until(lambda: len(found := run.arrivals("endless")) >= 200 and found, "200 tuples arrive")
    delays = [line["arrived"] - line["at"] for line in arrived]
    assert statistics.median(delays) < 1.0
    wait_until(lambda: run.diary("endless"), "100 acks are told")


def test_tuple_is_delivered_before_the_emitting_call_returns(run: Run) -> None:
    arrived = wait_until(lambda: len(found := run.arrivals("sleepy")) >= 20 and found, "20 tuples arrive")
    delays = [line["arrived"] - line["at"] for line in arrived]
    assert statistics.median(delays) < user.SLEEP_SECONDS


def test_emits_and_acks_of_a_bolt_are_delivered_before_it_returns(run: Run) -> None:
    (returned,) = wait_until(lambda: run.diary("stuck"), "the bolt returns")
    assert [line["arrived"] < returned["returned"] for line in run.arrivals("stuck")] == [True] * 3


def test_timed_out_tuple_names_the_component_that_held_it(run: Run) -> None:
    (failed,) = wait_until(lambda: run.diary("once"), "the tuple behind the long call times out")
    assert (failed["id"], failed["kind"], failed["component"]) == (2, "timeout", "stuck")
    assert "stuck task " in failed["message"]
    assert "in one call for " in failed["message"]


def test_status_reports_where_user_code_blocks(run: Run) -> None:
    def told() -> str:
        (process,) = (p for p in run.heron.status(run.name)["processes"] if p["component"] == "endless")
        return str(process.get("doing", ""))

    text = wait_until(lambda: (found := told()).count("(") and found, "status says where the spout is")
    assert text.startswith("in next_tuple for ")
    assert "Endless.next_tuple, blocking_topology.py:" in text
    assert text in told() or told().startswith("in next_tuple for ")
    assert "in next_tuple for " in run.heron.run("status", "local", run.name).stdout


def test_deactivated_spout_is_paused_within_its_call(run: Run) -> None:
    run.heron.run("deactivate", "local", run.name)
    run.heron.reaches(run.name, "paused")

    def stands() -> bool:
        before = len(run.arrivals("endless"))
        wait_until(lambda: "waited for room" in str(run.heron.status(run.name)), "status says that it waits")
        return len(run.arrivals("endless")) == before

    wait_until(stands, "nothing more arrives")
    count = len(run.arrivals("endless"))
    run.heron.run("activate", "local", run.name)
    wait_until(lambda: len(run.arrivals("endless")) > count + 10, "it goes on")
