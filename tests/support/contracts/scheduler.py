"""Contract test of schedulers, run with the ``heron`` command and the scheduler's own tools.

A subclass provides the scheduler under test as the fixture ``ground``: a local cluster, Docker, Swarm, Slurm or
Kubernetes. All tests share one topology, in any order; each test leaves it running with all of its processes. Behaviour
of one scheduler alone (a lost node, a queue, rights) is tested with that scheduler.
"""

from __future__ import annotations

import json
import re
import secrets
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, Protocol

import pytest

from tests.support.heron_command import query_json
from tests.support.waiting import wait_until

ROOT = Path(__file__).resolve().parents[3]
TOPOLOGY = Path(__file__).with_name("contract_topology.py")
COMMAND_SECONDS = 300.0
EXIT_UNKNOWN = 3
TOO_MUCH = {"topology.component.rammap": {"steady": 1 << 50}}  # bytes: a pebibyte
RESTART = ("--wait-timeout", "240")
Done = subprocess.CompletedProcess[str]


class SchedulerUnderTest(Protocol):
    """Scheduler under test."""

    address: str  # of the cluster, for ``heron``
    environment: dict[str, str]  # of the command
    options: tuple[str, ...]  # of a submit

    def life(self, name: str, number: int) -> str:
        """Return the id of a container's current life according to the scheduler; empty if there is none."""

    def end(self, name: str, number: int) -> None:
        """Kill a container from outside with kill -9."""

    def restart_scheduler(self, name: str) -> None:
        """Kill the process that watches the containers; return when another one runs."""

    def left(self, name: str) -> list[str]:
        """Return what is left of a topology that was killed, or rejected."""


class SchedulerContract:
    """Scheduler contract. ``too_much`` is the outcome for a topology that exceeds every machine.

    It is ``refused``, ``waits`` with a reason, or ``runs`` if the cluster does not limit resources.
    """

    too_much: Literal["refused", "waits", "runs"] = "refused"

    @pytest.fixture(scope="class")
    @classmethod
    def ground(cls) -> Iterator[SchedulerUnderTest]:
        """Yield the scheduler under test; overridden by subclasses."""
        raise NotImplementedError

    @pytest.fixture(scope="class")
    @classmethod
    def name(cls, ground: SchedulerUnderTest) -> Iterator[str]:
        """Yield a running topology; it is killed at the end, and nothing of it may be left."""
        name = f"Contract-{secrets.token_hex(3)}"
        submit(ground, name)
        yield name
        heron(ground, "kill", ground.address, name)
        heron(ground, "status", ground.address, name, code=EXIT_UNKNOWN)
        wait_until(lambda: not ground.left(name), f"nothing is left of {name}: {ground.left(name)}")
        submit(ground, name)  # the name is free again
        heron(ground, "kill", ground.address, name)
        wait_until(lambda: not ground.left(name), f"nothing is left of {name}: {ground.left(name)}")

    def test_every_container_of_the_plan_runs(self, ground: SchedulerUnderTest, name: str) -> None:
        numbers = [row["id"] for row in status(ground, name)["containers"]]
        assert numbers[0] == 0
        assert len(numbers) == 3
        lives = [ground.life(name, number) for number in numbers]
        assert all(lives)
        assert len(set(lives)) == len(lives)

    def test_dead_container_alone_is_restarted_and_its_cause_reported(
        self, ground: SchedulerUnderTest, name: str
    ) -> None:
        for number in (max(lives(ground, name)), 0):
            before = lives(ground, name)
            ground.end(name, number)
            after = others_than(ground, name, {number: before[number]})
            assert {n for n in before if after[n] != before[n]} == {number}
            container = process(ground, name, f"heron_container-{number}")
            assert container["restarts"] >= 1
            assert re.search("SIGKILL|Killed|137", container["last_error"]), container

    def test_restart_restarts_only_the_requested_containers(self, ground: SchedulerUnderTest, name: str) -> None:
        before = lives(ground, name)
        number = max(before)
        heron(ground, "restart", ground.address, name, str(number), *RESTART)
        after = others_than(ground, name, {number: before[number]})
        assert {n for n in before if after[n] != before[n]} == {number}
        heron(ground, "restart", ground.address, name, *RESTART)
        others_than(ground, name, after)

    def test_restarted_scheduler_adopts_containers(self, ground: SchedulerUnderTest, name: str) -> None:
        before = lives(ground, name)
        ground.restart_scheduler(name)
        runs(ground, name)
        assert lives(ground, name) == before
        number = max(before)
        ground.end(name, number)  # adopted containers are watched as well
        others_than(ground, name, {number: before[number]})

    def test_update_adds_and_removes_a_container(self, ground: SchedulerUnderTest, name: str) -> None:
        before = lives(ground, name)
        heron(ground, "update", ground.address, name, "--component-parallelism", "nothing:5", "--container-number", "3")
        runs(ground, name)
        more = lives(ground, name)
        assert before.items() < more.items()
        heron(ground, "update", ground.address, name, "--component-parallelism", "nothing:3", "--container-number", "2")
        runs(ground, name)
        assert len(lives(ground, name)) == 3
        gone = set(more) - set(lives(ground, name))
        wait_until(lambda: not any(ground.life(name, number) for number in gone), f"container {gone} has ended")

    def test_move_uses_a_new_container(self, ground: SchedulerUnderTest, name: str) -> None:
        before = lives(ground, name)
        number = max(before)
        heron(ground, "move", ground.address, name, str(number))
        runs(ground, name)
        after = lives(ground, name)
        assert number not in after
        assert len(after) == len(before)
        wait_until(lambda: not ground.life(name, number), f"container {number} has ended")

    def test_oversized_topology_is_rejected_or_waits_with_a_reason(self, ground: SchedulerUnderTest, name: str) -> None:
        greedy = f"Greedy-{secrets.token_hex(3)}"
        wait = ["--no-wait"] if self.too_much == "waits" else []
        done = submit(ground, greedy, *wait, given=TOO_MUCH, code=None)
        if self.too_much == "refused":
            assert done.returncode not in (0, 1), done
            assert "memory" in done.stderr.lower()
        else:
            assert done.returncode == 0, done
            if self.too_much == "waits":
                wait_until(lambda: status(ground, greedy)["cause"], "it says what it waits for")
            heron(ground, "kill", ground.address, greedy)
        heron(ground, "status", ground.address, greedy, code=EXIT_UNKNOWN)
        wait_until(lambda: not ground.left(greedy), f"nothing is left of {greedy}: {ground.left(greedy)}")


def heron(ground: SchedulerUnderTest, *arguments: str, code: int | None = 0) -> Done:
    """Run the command, which must end with ``code`` (None: any)."""
    done = subprocess.run(
        [sys.executable, "-m", "heron_cli", *arguments],
        cwd=ROOT, env=ground.environment, capture_output=True, text=True, check=False, timeout=COMMAND_SECONDS,
    )  # fmt: skip
    said = f"heron {' '.join(arguments)}: exit {done.returncode}\n{done.stdout}\n{done.stderr}"
    assert code in (None, done.returncode), said
    return done


def submit(
    ground: SchedulerUnderTest, name: str, *options: str, given: dict[str, Any] | None = None, code: int | None = 0
) -> Done:
    """Submit the topology; every task runs when this returns."""
    command = ["submit", ground.address, str(TOPOLOGY), "Contract", "--name", name, "--wait-timeout", "240"]
    return heron(ground, *command, *ground.options, *options, "--", json.dumps(given or {}), code=code)


def status(ground: SchedulerUnderTest, name: str) -> dict[str, Any]:
    """Return ``heron status -o json``."""
    found: dict[str, Any] = query_json("status", ground.address, name, environment=ground.environment)
    return found


def process(ground: SchedulerUnderTest, name: str, process: str) -> dict[str, Any]:
    """Return one process of the topology."""
    return next(dict(row) for row in status(ground, name)["processes"] if row["name"] == process)


def runs(ground: SchedulerUnderTest, name: str) -> None:
    """Wait until every process runs."""
    wait_until(lambda: status(ground, name)["state"] == "running", f"{name} runs")


def lives(ground: SchedulerUnderTest, name: str) -> dict[int, str]:
    """Return the life of each container of the plan."""
    return {row["id"]: ground.life(name, row["id"]) for row in status(ground, name)["containers"]}


def others_than(ground: SchedulerUnderTest, name: str, ended: dict[int, str]) -> dict[int, str]:
    """Return the lives of all containers, once all of ``ended`` are over and the whole topology runs."""

    def anew() -> bool:
        now = {number: ground.life(name, number) for number in ended}
        return all(now[number] not in ("", life) for number, life in ended.items())

    wait_until(anew, f"containers {sorted(ended)} live anew")
    runs(ground, name)
    return lives(ground, name)
