"""A topology that user code submits is no daemon of its instance: it goes on when the one that it came from ends."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
import submitting_topology as user
from front_door import FrontDoor, front_door, unique

from tests.support.waiting import wait_until


@pytest.fixture
def door(tmp_path: Path) -> Iterator[FrontDoor]:
    with front_door(tmp_path) as made:
        yield made


def leaders(door: FrontDoor, name: str) -> dict[str, int]:
    """Those of its processes that nobody above may end."""
    return {
        title: pid for title, pid in door.pids(name).items() if title.startswith(("heron_scheduler", "heron_container"))
    }


def test_it_outlives_the_instance_the_container_and_the_topology_it_came_from(door: FrontDoor) -> None:
    outer, inner = unique("Outer"), unique("Inner")
    door.submit(outer, user.__file__, "Submitting", "--", str(door.folder), inner, user.__file__, topology__stmgrs=1)
    said = wait_until(
        lambda: (door.folder / "said").exists() and (door.folder / "said").read_text(), "it was submitted"
    )
    assert said.startswith("0\n"), said
    door.submitted.setdefault(inner, [])
    door.reaches(inner, "running")
    door.remember(inner)
    before = leaders(door, inner)
    (instance,) = (p["pid"] for p in door.status(outer)["processes"] if p["component"] == "submit")
    assert psutil.Process(before["heron_scheduler"]).ppid() == instance, "it has come to the instance, as a daemon does"
    assert b"HERONRY_CONTAINER" not in Path(f"/proc/{before['heron_scheduler']}/environ").read_bytes()

    os.kill(instance, signal.SIGKILL)
    wait_until(lambda: not psutil.pid_exists(instance), "the instance ends")
    door.reaches(outer, "running")
    os.kill(door.pids(outer)["heron_container-1"], signal.SIGKILL)
    door.reaches(outer, "running")
    door.kill(outer)
    assert leaders(door, inner) == before
    door.reaches(inner, "running")
    door.kill(inner)
