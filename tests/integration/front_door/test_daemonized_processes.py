"""Daemons of user code end with their instance, container or topology."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from heron_runtime import cgroups
from tests.integration.front_door import daemon_topology as user
from tests.support.heron_command import HeronCommand, heron_command, unique
from tests.support.waiting import wait_until


@dataclass
class Run:
    """Running topology, and the folder to which its daemons write."""

    heron: HeronCommand
    name: str
    folder: Path

    def instance(self) -> int:
        """Return the pid of the bolt's process, or 0 if there is none."""
        found = [p["pid"] for p in self.heron.status(self.name)["processes"] if p["component"] == "daemons"]
        return int(found[0] or 0) if found else 0

    def daemons(self, instance: int) -> dict[str, psutil.Process]:
        """Return the living daemons of this instance, by kind."""
        found = {}
        for file in self.folder.glob(f"*.{instance}.*"):
            kind, _, pid = file.name.split(".")
            if psutil.pid_exists(int(pid)) and psutil.Process(int(pid)).status() != psutil.STATUS_ZOMBIE:
                found[kind] = psutil.Process(int(pid))
        return found

    def all_there(self, other_than: int = 0) -> int:
        """Wait until the bolt has an instance other than this one, with its daemons; return its pid."""

        def there() -> int:
            instance = self.instance()
            return instance if instance not in (0, other_than) and len(self.daemons(instance)) == len(user.KINDS) else 0

        return wait_until(there, "the three daemons of the bolt run")

    def gone(self, instance: int) -> None:
        """Wait until all processes started by this instance have ended and no file grows."""
        wait_until(lambda: not self.daemons(instance), f"the daemons of {instance} end")
        sizes = {file: file.stat().st_size for file in self.folder.glob(f"*.{instance}.*")}
        assert len(sizes) == len(user.KINDS)
        self.instance()  # a command takes longer than the interval between two lines of a daemon
        assert {file: file.stat().st_size for file in sizes} == sizes

    def leader(self) -> int:
        """Return the pid of heron_container of the bolt's container."""
        return self.heron.pids(self.name)["heron_container-1"]


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Run]:
    with heron_command(tmp_path) as heron:
        found = Run(heron, unique("Daemons"), tmp_path / "written")
        found.folder.mkdir()
        heron.submit(found.name, user.__file__, "LeavesBehind", "--", str(found.folder), topology__stmgrs=1)
        yield found


def nothing_survives(run: Run, instances: set[int]) -> None:
    """Kill the topology and check that no daemon of these instances is left when the command returns."""
    run.heron.kill(run.name)
    assert [run.daemons(instance) for instance in instances] == [{}] * len(instances)


def test_daemon_ends_with_its_instance_and_none_survives_a_kill(run: Run) -> None:
    first = run.all_there()
    assert [d.ppid() for d in run.daemons(first).values()] == [first] * len(user.KINDS), "it has adopted them"
    os.kill(first, signal.SIGKILL)
    second = run.all_there(other_than=first)
    run.gone(first)
    nothing_survives(run, {first, second})


def test_no_daemon_survives_the_leader_of_its_container(run: Run) -> None:
    first = run.all_there()
    os.kill(run.leader(), signal.SIGKILL)
    second = run.all_there(other_than=first)
    run.gone(first)
    # The leader and its zygotes at once: the scheduler adopts the rest.
    os.killpg(run.leader(), signal.SIGKILL)
    third = run.all_there(other_than=second)
    run.gone(second)
    os.kill(run.leader(), signal.SIGKILL)
    nothing_survives(run, {first, second, third})


def test_executed_instances_leave_no_daemons(tmp_path: Path) -> None:
    with heron_command(tmp_path) as heron:
        run = Run(heron, unique("Daemons"), tmp_path / "written")
        run.folder.mkdir()
        heron.submit(run.name, user.__file__, "LeavesBehind", "--", str(run.folder), heron__instance__fork=False)
        first = run.all_there()
        os.kill(first, signal.SIGKILL)
        second = run.all_there(other_than=first)
        run.gone(first)
        nothing_survives(run, {first, second})


def without_witness() -> set[str]:
    """Return the kinds of daemons without parent and mark, held only by the container's control group.

    See docs/explanation/security.md.
    """
    return {"emptied"} if cgroups.place() is None else set()


def test_no_daemon_survives_a_container_adopted_by_another_scheduler(run: Run) -> None:
    first = run.all_there()
    scheduler = run.heron.pids(run.name)["heron_scheduler"]
    os.kill(scheduler, signal.SIGKILL)
    wait_until(lambda: run.heron.pids(run.name)["heron_scheduler"] not in (0, None, scheduler), "there is another one")
    daemons = run.daemons(first)
    os.killpg(run.leader(), signal.SIGKILL)  # also kills all processes that could adopt
    try:
        second = run.all_there(other_than=first)
        wait_until(lambda: set(run.daemons(first)) <= without_witness(), "what it has left behind ends")
        run.heron.kill(run.name)
        assert run.daemons(second) == {}
    finally:
        if without_witness():
            daemons["emptied"].kill()


def test_control_group_and_marks_find_daemons_after_all_parents_are_killed(run: Run) -> None:
    """The scheduler ends first, then the whole container, so no process is left that could adopt."""
    instance = run.all_there()
    daemons = run.daemons(instance)
    pids = run.heron.pids(run.name)
    for leader in ("heron_scheduler", "heron_container-0", "heron_container-1"):
        os.kill(pids[leader], signal.SIGSTOP)  # so that none starts another
    try:
        for leader in ("heron_scheduler", "heron_container-0", "heron_container-1"):
            os.killpg(pids[leader], signal.SIGKILL)
        wait_until(lambda: not psutil.pid_exists(instance), "the instance ends")
        run.heron.kill(run.name)
        assert set(run.daemons(instance)) <= without_witness()
    finally:
        if without_witness():
            daemons["emptied"].kill()
