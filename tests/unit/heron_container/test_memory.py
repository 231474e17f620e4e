"""Memory of a container and a scheduler: bounded for any output and deaths, and OOM kills are explained."""

from __future__ import annotations

import sys
import threading
import tracemalloc
from pathlib import Path

import pytest

from heron_container.core import supervisor as supervisor_module
from heron_container.core.supervisor import ProcessSpec, Supervisor
from heron_container.shell.logs import LastLines, LogWriter, memory_bound
from heron_container.shell.resource_limits import MemoryLimit
from heron_control.schedulers import containers as containers_module
from heron_control.schedulers.containers import ContainerStage, ContainerTable
from heron_runtime.model.backoff import BackoffPolicy

POLICY = BackoffPolicy(100, 10_000, 60_000)
FLOODS = (b"xy", b"x" * 65_536, b"\n" * 65_536, b"x\n" * 32_768, ("x" * 3000 + "\n").encode() * 20)
QUEUE_BYTES = 1 << 17


class SlowDisk(LogWriter):
    """Log writer that writes nothing until released."""

    released: threading.Event

    def _write(self, name: str, data: bytes, dropped: int) -> None:
        self.released.wait(60)


def test_memory_of_queued_output_is_bounded() -> None:
    """Measures allocated bytes while the disk accepts nothing; excess lines are counted."""
    SlowDisk.released = threading.Event()
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        writer = SlowDisk(Path("/nowhere"), 1 << 20, 1, QUEUE_BYTES)
        tails = {f"p{n}": LastLines() for n in range(len(FLOODS))}
        for turn in range(12_030):
            for data, (name, tail) in zip(FLOODS if turn >= 12_000 else FLOODS[:1], tails.items(), strict=False):
                chunk = bytes(bytearray(data))  # as read: no other reference exists
                tail.add(chunk)
                writer.put(name, chunk)
        held = tracemalloc.get_traced_memory()[0] - before
        assert held < memory_bound(len(FLOODS), QUEUE_BYTES)
        assert writer.dropped_lines > 0
    finally:
        SlowDisk.released.set()
        writer.close()
        tracemalloc.stop()


def row_bytes(row: object) -> int:
    fields = [getattr(row, name) for name in type(row).__slots__]  # type: ignore[attr-defined]  # dataclasses with slots
    return sum(map(sys.getsizeof, [row, *fields]))


def test_repeated_process_deaths_add_no_rows() -> None:
    table = Supervisor(POLICY, 1000)
    table.want(0, [ProcessSpec(slot, "heron_instance", f"i{slot}") for slot in range(5)])
    for turn in range(200):
        now_ms = 50 * turn
        for slot in table.processes:
            if table.processes[slot].alive:
                table.on_started(now_ms, slot, 1000 + 10 * turn + slot)
                table.kill(slot, "\U0001f680" * 10_000)
                assert len(table.on_exit(now_ms, slot, "\U0001f680" * 10_000)) <= 5
        assert len(table.tick(now_ms)) <= 5
        table.check()
    assert len(table.processes) == 5
    assert all(process.restarts > 1 for process in table.processes.values())
    assert all(row_bytes(row) < supervisor_module.ROW_BYTES for row in table.processes.values())


def test_repeated_container_deaths_add_no_rows() -> None:
    table = ContainerTable(POLICY, 1000, 1000)
    table.want(0, range(5))
    for turn in range(200):
        now_ms = 50 * turn
        for number in table.rows:
            if table.rows[number].stage is ContainerStage.UP:
                table.born(now_ms, number, 1000 + 10 * turn + number)
                table.ended(now_ms, number, "\U0001f680" * 10_000)
                assert len(table.gone(now_ms, number)) <= 5
        assert len(table.tick(now_ms)) <= 5
        table.check()
    assert len(table.rows) == 5
    assert all(row.restarts > 1 for row in table.rows.values())
    assert all(row_bytes(row) < containers_module.ROW_BYTES for row in table.rows.values())


REASON = "killed by SIGKILL"


def write(root: Path, version: int, kills: int, limit: str) -> None:
    if version == 2:
        (root / "memory.events").write_text(f"low 0\nhigh 0\nmax 7\noom 1\noom_kill {kills}\n")
        (root / "memory.max").write_text(limit)
        return
    (root / "memory").mkdir(exist_ok=True)
    (root / "memory" / "memory.oom_control").write_text(f"oom_kill_disable 0\nunder_oom 0\noom_kill {kills}\n")
    (root / "memory" / "memory.limit_in_bytes").write_text(limit)


@pytest.mark.parametrize("version", [1, 2])
def test_kill_is_explained_once_if_the_oom_count_has_grown(tmp_path: Path, version: int) -> None:
    write(tmp_path, version, 3, "536870912\n")
    limit = MemoryLimit(tmp_path)
    assert limit.explain(REASON) == REASON, "kills from before are not ours"
    write(tmp_path, version, 4, "536870912\n")
    said = limit.explain(REASON)
    assert said.startswith(f"{REASON}: out of memory")
    assert "512 MiB" in said
    assert "topology.container.ram" in said
    assert limit.explain(REASON) == REASON


@pytest.mark.parametrize(("version", "unlimited"), [(1, "9223372036854771712\n"), (2, "max\n")])
def test_kill_without_a_memory_limit_is_not_explained(tmp_path: Path, version: int, unlimited: str) -> None:
    write(tmp_path, version, 0, unlimited)
    limit = MemoryLimit(tmp_path)
    write(tmp_path, version, 1, unlimited)
    assert limit.explain(REASON) == REASON


def test_kill_without_a_control_group_is_not_explained(tmp_path: Path) -> None:
    assert MemoryLimit(tmp_path).explain(REASON) == REASON
