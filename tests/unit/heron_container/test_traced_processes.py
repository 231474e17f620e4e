"""Traced processes: detected, and their silence does not count."""

from __future__ import annotations

import ctypes
import os
import signal

from heron_container.core.liveness import Liveness
from heron_control.schedulers.identity import traced

PTRACE_TRACEME = 0
TICK_MS = 500


def test_traced_process_is_detected() -> None:
    ready, told = os.pipe()
    pid = os.fork()
    if pid == 0:
        ctypes.CDLL(None).ptrace(PTRACE_TRACEME, 0, 0, 0)
        os.write(told, b"x")
        signal.pause()
        os._exit(0)
    try:
        os.read(ready, 1)
        assert traced(pid)
        assert not traced(os.getpid())
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        os.close(ready)
        os.close(told)
    assert not traced(pid), "it is gone"


def test_silent_process_lives_while_its_lease_is_extended() -> None:
    judge = Liveness(10_000, 30_000, 120_000, TICK_MS)
    judge.watch(0)
    found = []
    for _ in range(1000):
        for slot in judge.silent_slots():
            judge.extend(slot, 5000)
        found += judge.tick(TICK_MS, {0: 0}, {0: 1.0})
    assert found == []
    for _ in range(100):
        found += judge.tick(TICK_MS, {0: 0}, {0: 1.0})
    assert found, "and no longer"
