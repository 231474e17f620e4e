"""Adopted orphans, tested in a separate process because a test run must not adopt any."""

from __future__ import annotations

import subprocess
import sys

import pytest

from heron_runtime.spawn import child_environment

BEGIN = """
import os, signal, sys, time
import psutil
from heron_runtime.linux import become_subreaper
from heron_runtime.orphans import end_all_orphans, end_orphans, reap_ended_orphans

def orphan(lives):
    read, write = os.pipe()
    parent = os.fork()
    if parent == 0:
        os.setsid()
        pid = os.fork()
        if pid == 0:
            time.sleep(60 if lives else 0)
            os._exit(7)
        os.write(write, str(pid).encode())
        os._exit(0)
    os.waitpid(parent, 0)
    os.close(write)
    return int(os.read(read, 20))

def own(code):
    pid = os.fork()
    if pid == 0:
        os._exit(code)
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    return pid

become_subreaper()
"""


def run(program: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", BEGIN + program], env=child_environment(), capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.skipif(sys.platform != "linux", reason="prctl is Linux's")
def test_orphans_are_killed_and_own_children_are_not() -> None:
    run("""
mine = os.fork()
if mine == 0:
    time.sleep(60)
a, b = orphan(True), orphan(False)
assert {p.pid for p in psutil.Process().children()} == {mine, a, b}
assert end_all_orphans([mine], 30)
assert [p.pid for p in psutil.Process().children()] == [mine]
os.kill(mine, signal.SIGKILL)
assert os.waitpid(mine, 0) == (mine, signal.SIGKILL)
""")


@pytest.mark.skipif(sys.platform != "linux", reason="prctl is Linux's")
def test_own_children_stay_waitable_and_zombies_are_bounded() -> None:
    run("""
reap_ended_orphans()  # no children at all
children = [own(3) for _ in range(6)]
reap_ended_orphans(6)
assert os.waitpid(children[0], 0)[1] == 3 << 8
adopted = [orphan(False) for _ in range(4)]
for pid in adopted:
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
reap_ended_orphans(4)
left = {p.pid for p in psutil.Process().children()}
assert len(left) == 4 and left == set(adopted), "the oldest are reaped"
""")


@pytest.mark.skipif(sys.platform != "linux", reason="prctl is Linux's")
def test_leader_of_another_topology_is_spared_and_an_imitation_is_not() -> None:
    run("""
from setproctitle import setproctitle

def titled(title, leads):
    read, write = os.pipe()
    if os.fork() == 0:
        if os.fork() == 0:
            if leads:
                os.setsid()
            setproctitle(title)
            os.write(write, str(os.getpid()).encode())
            time.sleep(60)
        os._exit(0)
    os.wait()
    return int(os.read(read, 20))

scheduler, container = titled("heron:Other:heron_scheduler", True), titled("heron:Other:heron_container-3", True)
titled("heron:Other:heron_scheduler", False), titled("heron:Other:container_1_bolt_2", True)
assert end_all_orphans([], 30)
assert {p.pid for p in psutil.Process().children()} == {scheduler, container}
for pid in (scheduler, container):
    os.kill(pid, signal.SIGKILL)
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)  # until then it leads another topology
assert end_all_orphans([], 30), "what has ended is reaped"
assert not psutil.Process().children()
""")
