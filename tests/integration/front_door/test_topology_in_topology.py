"""A topology submitted by user code is not a daemon of its instance and outlives it."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.integration.front_door import submitting_topology as user
from tests.support.heron_command import HeronCommand, heron_command, unique
from tests.support.waiting import wait_until


@pytest.fixture
def heron(tmp_path: Path) -> Iterator[HeronCommand]:
    with heron_command(tmp_path) as made:
        yield made


def leaders(heron: HeronCommand, name: str) -> dict[str, int]:
    """Return its scheduler and container leaders, which must outlive their parents."""
    return {
        title: pid
        for title, pid in heron.pids(name).items()
        if title.startswith(("heron_scheduler", "heron_container"))
    }


def test_inner_topology_outlives_the_instance_container_and_topology_that_submitted_it(heron: HeronCommand) -> None:
    outer, inner = unique("Outer"), unique("Inner")
    heron.submit(outer, user.__file__, "Submitting", "--", str(heron.folder), inner, user.__file__, topology__stmgrs=1)
    said = wait_until(
        lambda: (heron.folder / "said").exists() and (heron.folder / "said").read_text(), "it was submitted"
    )
    assert said.startswith("0\n"), said
    heron.submitted.setdefault(inner, [])
    heron.reaches(inner, "running")
    heron.remember(inner)
    before = leaders(heron, inner)
    (instance,) = (p["pid"] for p in heron.status(outer)["processes"] if p["component"] == "submit")
    assert psutil.Process(before["heron_scheduler"]).ppid() == instance, "it has come to the instance, as a daemon does"
    assert b"HERONRY_CONTAINER" not in Path(f"/proc/{before['heron_scheduler']}/environ").read_bytes()

    os.kill(instance, signal.SIGKILL)
    wait_until(lambda: not psutil.pid_exists(instance), "the instance ends")
    heron.reaches(outer, "running")
    os.kill(heron.pids(outer)["heron_container-1"], signal.SIGKILL)
    heron.reaches(outer, "running")
    heron.kill(outer)
    assert leaders(heron, inner) == before
    heron.reaches(inner, "running")
    heron.kill(inner)
