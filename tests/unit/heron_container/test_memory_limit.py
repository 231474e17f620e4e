"""OOM kills reported by a control group, in the files of both versions."""

from __future__ import annotations

from pathlib import Path

import pytest

from heron_container.shell.resource_limits import MemoryLimit

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
