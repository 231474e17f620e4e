"""heron_container with real processes: start, death, silence, zygotes, orphans and the killed state."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import grpc
import psutil
import pytest

from heron_container.shell.logs import READ_BYTES
from heron_runtime.net.identity import draw_key, identity_of, parse_identity
from heron_runtime.net.rpc import CONTAINER_SERVICE, make_channel
from heron_runtime.wire.container import ListFiles, ReadFile
from tests.support.local_containers import LocalContainers, alive, kill_9, local_containers
from tests.support.waiting import wait_until_async


@pytest.fixture
def world(tmp_path: Path) -> Iterator[LocalContainers]:
    with local_containers(tmp_path) as made:
        yield made


def beats(world: LocalContainers) -> dict[str, int]:
    """Return the number of heartbeats of each process of container 1, by slot."""
    slots = Path(world.launch.heartbeats(1)).iterdir()
    return {slot.name: int.from_bytes(slot.read_bytes()[:8], sys.byteorder) for slot in slots}


async def test_all_processes_start_and_dead_ones_restart(world: LocalContainers) -> None:
    world.start_container(1)
    first = await world.all_running(1)
    assert list(first) == [
        "heron_container-1", "stream_manager-1", "metrics_manager-1", "container_1_word_1", "container_1_word_2",
    ]  # fmt: skip
    kill_9(first["stream_manager-1"].pid)
    kill_9(first["container_1_word_2"].pid)
    second = await world.all_running(1, {first["stream_manager-1"].pid, first["container_1_word_2"].pid})
    for name in ("stream_manager-1", "container_1_word_2"):
        assert second[name].restarts == 1
        assert second[name].last_error == "killed by SIGKILL"
    for name in ("metrics_manager-1", "container_1_word_1"):
        assert second[name].pid == first[name].pid


async def test_restart_reports_exit_code_and_last_lines(world: LocalContainers) -> None:
    world.start_container(1)
    await world.all_running(1)
    world.order("container_1_word_1", "exit 3")

    async def told() -> bool:
        return (await world.processes(1))["container_1_word_1"].restarts == 1

    await wait_until_async(told)
    process = (await world.processes(1))["container_1_word_1"]
    assert process.last_error == "exit code 3: about to fail"
    assert "about to fail" in process.last_lines
    assert "hello from container_1_word_1" in process.last_lines
    await wait_until_async(lambda: "about to fail" in world.log("container_1_word_1"))


async def test_forked_instances_have_their_own_random_state_and_environment(world: LocalContainers) -> None:
    world.start_container(1)
    found = await world.all_running(1)
    drawn = [p.read_text() for p in Path(world.launch.home, "drawn").glob("container_1_word_*")]
    assert len(set(drawn)) == 2
    assert all(text.endswith(" green") for text in drawn)
    child = psutil.Process(found["container_1_word_1"].pid)
    assert child.cmdline()[0].startswith("heron:words:container_1_word_1")
    zygote = child.parent()
    assert zygote is not None
    assert zygote.cmdline()[0].startswith("heron:words:zygote-1")
    assert zygote.num_threads() == 1
    # 0, 1, 2, the lifeline, its heartbeat file, and none of the zygote's
    opened = {os.readlink(f"/proc/{child.pid}/fd/{fd}") for fd in os.listdir(f"/proc/{child.pid}/fd")}
    assert len(opened) == 4
    assert "/dev/null" in opened
    assert [path for path in opened if path.startswith(f"{world.launch.heartbeats(1)}/")]


async def test_stopped_process_is_killed_after_its_lease(tmp_path: Path) -> None:
    settings = {"heron.liveness.suspect.secs": 0.5, "heron.liveness.kill.secs": 2.0}
    with local_containers(tmp_path, **settings) as world:
        world.start_container(1)
        first = await world.all_running(1)
        stopped = {first["metrics_manager-1"].pid, first["container_1_word_1"].pid}
        for pid in stopped:
            os.kill(pid, signal.SIGSTOP)
        second = await world.all_running(1, stopped)
        assert not any(alive(pid) for pid in stopped)
        for name in ("metrics_manager-1", "container_1_word_1"):
            assert second[name].last_error.startswith("killed: no heartbeat and no CPU progress for")
        assert second["stream_manager-1"].pid == first["stream_manager-1"].pid


async def test_busy_process_has_a_longer_lease(tmp_path: Path) -> None:
    limits = {"suspect": 0.5, "kill": 2.0, "kill.always": 5.0}
    with local_containers(
        tmp_path, **{f"heron.liveness.{name}.secs": value for name, value in limits.items()}
    ) as world:
        world.start_container(1)
        first = await world.all_running(1)
        world.order("container_1_word_1", "spin")
        second = await world.all_running(1, {first["container_1_word_1"].pid})
        assert second["container_1_word_1"].last_error.startswith("killed: no heartbeat for ")


async def test_container_that_was_stopped_kills_no_process(tmp_path: Path) -> None:
    settings = {"heron.liveness.suspect.secs": 0.5, "heron.liveness.kill.secs": 2.0}
    with local_containers(tmp_path, **settings) as world:
        container = world.start_container(1)
        first = await world.all_running(1)
        pids = [p.pid for p in first.values()]
        for pid in [*pids[1:], container.pid]:
            os.kill(pid, signal.SIGSTOP)
        await wait_until_async(lambda: world.location(1) is None)  # its session has expired
        await asyncio.sleep(3.0)  # the pause itself: longer than every lease
        before = beats(world)
        for pid in [container.pid, *pids[1:]]:
            os.kill(pid, signal.SIGCONT)
        # The container has checked again, and each process has sent at least two heartbeats: none may be killed now.
        await wait_until_async(lambda: world.location(1) is not None)
        await wait_until_async(lambda: all(beat >= before[slot] + 2 for slot, beat in beats(world).items()))
        assert [p.pid for p in (await world.all_running(1)).values()] == pids


async def test_kill_9_of_the_container_leaves_no_orphans(world: LocalContainers) -> None:
    container = world.start_container(1)
    found = await world.all_running(1)
    world.order("container_1_word_1", "deaf")
    # A stopped instance cannot see its lifeline; the kernel ends it with the zygote.
    os.kill(found["container_1_word_2"].pid, signal.SIGSTOP)
    assert len(world.ours()) == 7  # with the two zygotes
    kill_9(container.pid)
    await wait_until_async(lambda: not world.ours(), 10)


async def test_dead_zygote_restarts_with_its_instances(world: LocalContainers) -> None:
    world.start_container(1)
    first = await world.all_running(1)
    instances = {first[name].pid for name in ("container_1_word_1", "container_1_word_2")}
    zygote = psutil.Process(min(instances)).ppid()
    kill_9(zygote)
    second = await world.all_running(1, instances)
    assert not any(alive(pid) for pid in instances)
    assert second["container_1_word_1"].last_error == "its zygote has ended"
    assert second["stream_manager-1"].pid == first["stream_manager-1"].pid
    assert psutil.Process(second["container_1_word_1"].pid).ppid() != zygote


async def test_services_are_forked_and_restart_with_their_zygote(world: LocalContainers) -> None:
    world.start_container(1)
    first = await world.all_running(1)
    services = {first[name].pid for name in ("stream_manager-1", "metrics_manager-1")}
    (zygote,) = {psutil.Process(pid).ppid() for pid in services}
    assert psutil.Process(zygote).cmdline()[0].startswith("heron:words:services-1")
    assert psutil.Process(zygote).num_threads() == 1
    drawn = [p.read_text() for p in Path(world.launch.home, "drawn").iterdir()]
    assert len(set(drawn)) == 4, "two processes drew the same numbers"
    kill_9(zygote)
    second = await world.all_running(1, services)
    assert not any(alive(pid) for pid in services)
    assert second["stream_manager-1"].last_error == "its zygote has ended"
    (newer,) = {psutil.Process(second[name].pid).ppid() for name in ("stream_manager-1", "metrics_manager-1")}
    assert newer != zygote
    assert second["container_1_word_1"].pid == first["container_1_word_1"].pid


async def test_services_are_executed_if_they_cannot_be_forked(world: LocalContainers) -> None:
    broken = world.rooms / "stream_manager" / "__main__.py"
    thread = "import threading, time\nthreading.Thread(target=time.sleep, args=(60,), daemon=True).start()\n"
    broken.write_text(thread + broken.read_text())
    container = world.start_container(1)
    found = await world.all_running(1)
    assert psutil.Process(found["metrics_manager-1"].pid).ppid() == container.pid
    assert psutil.Process(found["container_1_word_1"].pid).ppid() != container.pid


async def test_zygote_of_instances_does_not_load_grpc(world: LocalContainers) -> None:
    world.start_container(1)
    found = await world.all_running(1)
    zygote = psutil.Process(found["container_1_word_1"].pid).ppid()
    assert "cygrpc" not in Path(f"/proc/{zygote}/maps").read_text()
    services = psutil.Process(found["metrics_manager-1"].pid).ppid()
    assert "cygrpc" in Path(f"/proc/{services}/maps").read_text()


async def test_instances_are_executed_if_the_topology_brings_another_library_version(world: LocalContainers) -> None:
    folder = world.launch.package_dir / "requirements" / "numpy-0.0.1.dist-info"
    folder.mkdir(parents=True)
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: numpy\nVersion: 0.0.1\n")
    container = world.start_container(1)
    found = await world.all_running(1)
    assert psutil.Process(found["container_1_word_1"].pid).ppid() == container.pid
    assert "numpy 0.0.1" in world.log("heron_container-1")
    container.terminate()
    assert container.wait(15) == 0
    assert not world.ours()


async def test_instances_are_executed_without_a_zygote(world: LocalContainers) -> None:
    broken = world.rooms / "heron_instance" / "shell" / "main.py"
    broken.write_text("import threading, time\nthreading.Thread(target=time.sleep, args=(60,), daemon=True).start()\n"
                      + broken.read_text())  # fmt: skip
    container = world.start_container(1)
    found = await world.all_running(1)
    assert psutil.Process(found["container_1_word_1"].pid).ppid() == container.pid
    assert "an import has started" in world.log("heron_container-1-zygote")


async def test_killed_state_stops_all_processes_in_order(world: LocalContainers) -> None:
    container = world.start_container(1)
    await world.all_running(1)
    world.order("stream_manager-1", "deaf")
    await wait_until_async(lambda: not Path(world.launch.home, "orders", "stream_manager-1").exists())
    world.kill_topology()
    await wait_until_async(lambda: container.poll() is not None)
    assert container.returncode == 0
    assert not world.ours()
    assert world.location(1) is None
    assert not world.launch.heartbeats(1).exists()


async def test_second_container_with_the_same_number_refuses_to_start(world: LocalContainers) -> None:
    world.start_container(1)
    await world.all_running(1)
    assert await asyncio.to_thread(world.start_container(1).wait, 20) == 121


async def test_container_starts_from_the_saved_plan_without_the_store(world: LocalContainers) -> None:
    container = world.start_container(1)
    first = await world.all_running(1)
    kill_9(container.pid)
    container.wait()
    away = Path(world.folder, "state")
    away.rename(world.folder / "elsewhere")
    away.write_text("no folder, so no store")
    world.start_container(1)
    titles = {f"heron:words:{name}" for name in first}
    await wait_until_async(lambda: titles <= world.titles())


async def test_logs_are_served_to_key_holders_within_the_log_folder(world: LocalContainers) -> None:
    world.launch.settings["heron.logging.maximum.size.mb"] = 1
    world.launch.save(world.launch_file)
    world.start_container(1)
    await world.all_running(1)
    world.order("container_1_word_1", "talk 20000")  # two megabytes
    await wait_until_async(lambda: (world.launch.log_dir / "container_1_word_1.log.1").exists())
    await wait_until_async(lambda: "line 19999" in world.log("container_1_word_1"))
    listed = await world.call(1, "ListFiles", ListFiles())
    sizes = {file.path: file.size_bytes for file in listed.files}
    turned = sizes["container_1_word_1.log.1"]  # the rotated file ends before the line that did not fit
    assert (1 << 20) - READ_BYTES < turned <= 1 << 20
    part = await world.call(1, "ReadFile", ReadFile("container_1_word_1.log.1", 0, 33))
    assert part.data.startswith(b"hello from container_1_word_1\n")
    (world.launch.log_dir / "link").symlink_to(world.launch.secret_file)
    for path, code in (("../secret", "INVALID_ARGUMENT"), ("/etc/passwd", "INVALID_ARGUMENT"), ("link", "NOT_FOUND")):
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await world.call(1, "ReadFile", ReadFile(path, 0, 100))
        assert refused.value.code().name == code
    place = world.location(1)
    assert place is not None
    ours = identity_of(world.launch)
    stranger, namesake = parse_identity(draw_key(), "words-1"), replace(ours, topology_id="other")
    for identity, code in ((stranger, "UNAVAILABLE"), (namesake, "FAILED_PRECONDITION")):
        async with make_channel(f"{place.host}:{place.port}", identity) as channel:
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await CONTAINER_SERVICE.call(channel, "ListFiles")(ListFiles(), metadata=identity.metadata())
            assert refused.value.code().name == code
