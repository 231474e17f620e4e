"""Values that must be new for each process of a task: its incarnation and its random keys."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from heron_instance.shell import main
from heron_instance.shell.main import InstanceProcess
from heron_runtime.launch import Launch
from tests.support.harness.executors import SHUFFLE, Part, make_plan
from tests.support.harness.single_spout import Nothing, Source


def an_instance(home: Path) -> InstanceProcess:
    launch = Launch("local", "me", "d", "t", "t-1", f"files://{home}/state", str(home), str(home))
    return InstanceProcess(launch, 1, "s", 1, 0, -1, "")


def test_each_start_has_a_greater_incarnation(tmp_path: Path) -> None:
    incarnations = [an_instance(tmp_path).incarnation for _ in range(5)]
    assert incarnations == sorted(set(incarnations))
    assert len({number & 0xFFFF for number in incarnations}) > 1, "roots show it, too"


def keys_of_a_fork(instance: InstanceProcess) -> list[int]:
    """Return the first keys that a child process forked now draws."""
    plan = make_plan({"s": Part(Source, 1, {"default": ["x"]}), "r": Part(Nothing, 1, {}, [("s", "default", SHUFFLE)])})
    read, write = os.pipe()
    if os.fork() == 0:
        try:
            driver: Any = None  # the executor does not run
            executor: Any = instance._make_executor(plan, None, driver)
            os.write(write, executor.collector._draw(4).tobytes())
        finally:
            os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as pipe:
        data = pipe.read()
    os.wait()
    return list(np.frombuffer(data, np.uint64))


def test_forked_processes_draw_different_keys(tmp_path: Path) -> None:
    instance = an_instance(tmp_path)
    first, second = keys_of_a_fork(instance), keys_of_a_fork(instance)
    assert len(first) == len(second) == 4
    assert not set(first) & set(second)


@pytest.fixture(autouse=True)
def loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(main, "load", lambda path: Source)
