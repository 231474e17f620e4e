"""heron_scheduler with real containers: deaths of several processes, a second scheduler, and a lost store.

Start, restart, adoption and kill are tested by the scheduler contract.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from heron_control.schedulers import local
from heron_runtime.wire.container import SchedulerStatus, SchedulerStatusRequest
from tests.support.local_containers import LocalContainers, alive, kill_9, local_containers
from tests.support.waiting import wait_until_async


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[LocalContainers]:
    with local_containers(tmp_path, tasks=1, containers=2) as made:
        monkeypatch.setenv("PYTHONPATH", made.environment()["PYTHONPATH"])
        yield made


async def all_up(world: LocalContainers, other_than: dict[int, int] | None = None) -> dict[int, int]:
    """Return the pid of each container once all are running."""
    found = {}
    for number in (0, 1, 2):
        old = (other_than or {}).get(number)
        await wait_until_async(lambda n=number, o=old: (place := world.location(n)) and place.pid != o)
        processes = await world.all_running(number)
        found[number] = processes[f"heron_container-{number}"].pid
    return found


async def test_dead_container_restarts_and_others_are_untouched(world: LocalContainers) -> None:
    local.start(world.launch, world.launch_file)
    first = await all_up(world)
    children = {p.pid for p in (await world.processes(1)).values()}
    # Hung children do not see their lifeline: the scheduler must end the whole group before it starts a new one.
    os.kill((await world.processes(1))["stream_manager-1"].pid, signal.SIGSTOP)
    kill_9(first[1])
    second = await all_up(world, {1: first[1]})
    assert {n: second[n] == first[n] for n in first} == {0: True, 1: False, 2: True}
    assert not any(alive(pid) for pid in children)
    status: SchedulerStatus = await world.call_scheduler("Status", SchedulerStatusRequest())
    assert [c.restarts for c in status.containers] == [0, 1, 0]
    assert status.containers[1].last_error == "killed by SIGKILL"


async def test_scheduler_and_container_0_that_die_together_restart(world: LocalContainers) -> None:
    pid = local.start(world.launch, world.launch_file)
    pids = await all_up(world)
    kill_9(pid)
    kill_9(pids[0])
    await wait_until_async(lambda: (place := world.scheduler()) is not None and place.pid != pid)
    again = await all_up(world, {0: pids[0]})
    assert {n: again[n] == pids[n] for n in pids} == {0: False, 1: True, 2: True}


async def test_restart_recovers_all_containers_and_the_scheduler(world: LocalContainers) -> None:
    pid = local.start(world.launch, world.launch_file)
    pids = await all_up(world)
    for number in (pid, *pids.values()):
        kill_9(number)
    await wait_until_async(lambda: not world.ours())
    assert await asyncio.to_thread(local.LocalScheduler().restart, world.launch, -1, 60.0) == (0, 1, 2)
    await all_up(world, pids)


async def test_second_scheduler_exits(world: LocalContainers) -> None:
    local.start(world.launch, world.launch_file)
    await all_up(world)
    second = world.start("heron_scheduler")
    assert await asyncio.to_thread(second.wait, 20) == 0
    assert "already has a scheduler" in world.log("heron_scheduler")


async def test_topology_killed_while_the_scheduler_is_dead_leaves_nothing(world: LocalContainers) -> None:
    pid = local.start(world.launch, world.launch_file)
    await all_up(world)
    kill_9(pid)
    world.kill_topology()
    await wait_until_async(lambda: not world.ours() and not Path(world.runtime).exists())


async def test_sigterm_to_the_scheduler_leaves_the_containers_running(world: LocalContainers) -> None:
    pid = local.start(world.launch, world.launch_file)
    pids = await all_up(world)
    os.kill(pid, signal.SIGTERM)
    await wait_until_async(lambda: (place := world.scheduler()) is not None and place.pid != pid)
    assert await all_up(world) == pids


async def test_a_store_that_comes_back_empty_ends_nothing(world: LocalContainers, tmp_path: Path) -> None:
    local.start(world.launch, world.launch_file)
    pids = await all_up(world)
    world.store.close()
    (tmp_path / "state").rename(tmp_path / "lost")
    world.store.open()
    for name in ("heron_scheduler", "heron_container-0", "heron_container-1", "heron_container-2"):
        await wait_until_async(lambda n=name: "the state store was replaced" in world.log(n))
    kill_9(pids[1])
    await wait_until_async(lambda: world.log("heron_container-1").count("starting with the plan saved on disk"))
    assert alive(pids[0])
    assert alive(pids[2])
    assert world.scheduler() is None, "nothing is written to the other store"
    world.store.close()
    (tmp_path / "state").rename(tmp_path / "empty")
    (tmp_path / "lost").rename(tmp_path / "state")
    world.store.open()
    after = await all_up(world, {1: pids[1]})
    assert (after[0], after[2]) == (pids[0], pids[2])
    world.kill_topology()
    await asyncio.to_thread(local.LocalScheduler().kill, world.launch)
    await wait_until_async(lambda: not world.ours())
