"""User code that blocks, in real processes: what it has emitted and acked leaves meanwhile, and status tells of it."""

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
    """The running topology and what its tasks write."""

    heron: HeronCommand
    name: str
    folder: Path

    def diary(self, component: str) -> list[dict[str, Any]]:
        """What the tasks of a component have written."""
        return [line for file in sorted(self.folder.glob(f"{component}*.jsonl")) for line in json_lines(file)]

    def arrivals(self, kind: str) -> list[dict[str, Any]]:
        """When tuples of this kind were emitted and arrived."""
        return [line for line in self.diary("sink") if line["kind"] == kind]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    """The topology, once for all tests of this file. It must stop when it is killed, endless loops or not."""
    folder = tmp_path_factory.mktemp("blocking")
    with heron_command(folder) as heron:
        found = Run(heron, unique("Blocking"), folder)
        heron.submit(found.name, user.__file__, "Blocking", "--", str(folder))
        yield found
        heron.kill(found.name)


def test_a_spout_that_never_returns_delivers_and_is_told_of_acks(run: Run) -> None:
    arrived = wait_until(lambda: len(found := run.arrivals("endless")) >= 200 and found, "200 tuples arrive")
    delays = [line["arrived"] - line["at"] for line in arrived]
    assert statistics.median(delays) < 1.0
    wait_until(lambda: run.diary("endless"), "100 acks are told")


def test_a_tuple_does_not_wait_for_the_end_of_the_call_that_emitted_it(run: Run) -> None:
    arrived = wait_until(lambda: len(found := run.arrivals("sleepy")) >= 20 and found, "20 tuples arrive")
    delays = [line["arrived"] - line["at"] for line in arrived]
    assert statistics.median(delays) < user.SLEEP_SECONDS


def test_the_window_holds_within_one_call_that_emits_very_much(run: Run) -> None:
    wait_until(lambda: run.diary("many"), "every tuple of the one call is acked")
    (line,) = run.diary("many")
    assert line["acked"] == user.MANY
    pending = run.heron.json("metrics", "local", run.name)["components"]["many"]["__pending-acked-count"]
    assert pending["total"] <= 500 + 1024


def test_what_a_bolt_emits_and_acks_does_not_wait_until_it_returns(run: Run) -> None:
    (returned,) = wait_until(lambda: run.diary("stuck"), "the bolt returns")
    assert [line["arrived"] < returned["returned"] for line in run.arrivals("stuck")] == [True] * 3


def test_a_tuple_that_times_out_says_who_held_it_up(run: Run) -> None:
    (failed,) = wait_until(lambda: run.diary("once"), "the tuple behind the long call times out")
    assert (failed["id"], failed["kind"], failed["component"]) == (2, "timeout", "stuck")
    assert "stuck task " in failed["message"]
    assert "in one call for " in failed["message"]


def test_a_spout_whose_window_is_full_says_so_in_status(run: Run) -> None:
    """Two tuples are all it may have in flight, and nobody acks them."""

    def told() -> str:
        (process,) = (p for p in run.heron.status(run.name)["processes"] if p["component"] == "hoarder")
        return str(process.get("doing", ""))

    text = wait_until(told, "status says what the spout waits for")
    assert text.startswith("waiting for acks for ")
    assert ": 2 tuples are in flight, all of topology.max.spout.pending; raise it" in text


def test_status_tells_where_user_code_is(run: Run) -> None:
    def told() -> str:
        (process,) = (p for p in run.heron.status(run.name)["processes"] if p["component"] == "endless")
        return str(process.get("doing", ""))

    text = wait_until(lambda: (found := told()).count("(") and found, "status says where the spout is")
    assert text.startswith("in next_tuple for ")
    assert "Endless.next_tuple, blocking_topology.py:" in text
    assert text in told() or told().startswith("in next_tuple for ")
    assert "in next_tuple for " in run.heron.run("status", "local", run.name).stdout


def test_a_deactivated_spout_is_held_in_the_middle_of_its_call(run: Run) -> None:
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
