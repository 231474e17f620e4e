"""User code under its own user on ``local``: root submits, instances run as ``nobody`` (``heron.user.code.user``).

The interpreter may be in a folder that other users cannot enter, such as the home of root. Then commands run in their
own mount namespace, in which that folder is open and holds only the interpreter.
"""

from __future__ import annotations

import json
import os
import pwd
import shutil
import signal
import stat
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from heron_runtime.linux import CHANGE_USER, capabilities
from tests.integration.front_door import daemon_topology
from tests.integration.front_door import prying_topology as user
from tests.integration.front_door.test_daemonized_processes import Run, nothing_survives
from tests.support.heron_command import HeronCommand, heron_command, titles, unique
from tests.support.waiting import wait_until

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="capabilities and /proc are Linux's"),
    pytest.mark.skipif(os.geteuid() != 0, reason="only root may run children as another user"),
    pytest.mark.skipif(
        os.geteuid() == 0 and capabilities() & CHANGE_USER != CHANGE_USER, reason="a root without rights"
    ),
]
NOBODY = pwd.getpwnam("nobody")
SETTING = {"heron__user__code__user": NOBODY.pw_name}
OPENED = """
kept=$(mktemp -d) && mount --bind "$2" "$kept" && mount -t tmpfs -o mode=755 tmpfs "$1" && mkdir -p "$2" &&
mount --move "$kept" "$2" && rmdir "$kept" && shift 2 && exec "$@"
"""


def way_to_the_interpreter() -> list[str]:
    """Return the command prefix that lets other users run the interpreter."""
    prefix = Path(sys.base_prefix).resolve()
    closed = [above for above in reversed(prefix.parents) if not above.stat().st_mode & stat.S_IXOTH]
    return ["unshare", "--mount", "sh", "-c", OPENED, "sh", str(closed[0]), str(prefix)] if closed else []


@pytest.fixture
def folder() -> Iterator[Path]:
    """Yield a folder that other users can enter, unlike pytest's own."""
    made = Path(tempfile.mkdtemp(prefix="heronry-code-user-", dir="/tmp"))
    made.chmod(0o711)
    yield made
    shutil.rmtree(made)


@pytest.fixture
def heron(folder: Path) -> Iterator[HeronCommand]:
    with heron_command(folder) as made:
        made.command = [*way_to_the_interpreter(), *made.command]
        yield made


def pried(heron: HeronCommand, name: str, other_than: set[Path] = frozenset()) -> tuple[Path, dict[str, Any]]:
    """Return the next record that an instance writes, with its path."""
    home = Path(heron.submitted[name][0]["home"])
    (file,) = wait_until(lambda: set(home.glob("pried-*.json")) - set(other_than), "user code has tried")
    return file, json.loads(file.read_text())


def zygote(name: str) -> int:
    """Return the pid of the process that forks the instances."""
    (found,) = (process.pid for process in titles(name) if ":zygote-1" in " ".join(process.cmdline()))
    return int(found)


def has_ended(pid: int) -> bool:
    """Return True if the process is gone or a zombie."""
    return not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE


def is_walled_in(told: dict[str, Any]) -> None:
    """Check that user code reached nothing of Heronry's."""
    assert told["uids"] == [NOBODY.pw_uid] * 3
    assert told["gids"] == [NOBODY.pw_gid] * 3
    assert told["groups"] in ([], [NOBODY.pw_gid])
    assert set(told["capabilities"].values()) == {0}
    assert told["no_new_privileges"] == "1"
    assert told["read"] == told["removed"] == told["became"] == []
    assert told["home"] == NOBODY.pw_dir
    assert told["stdout"]
    assert 0 < len(told["beats"]) == len(set(told["beats"]) - {0, 1}), "those of the two services are closed to it"
    control = {title: got for title, got in told["processes"].items() if not title.startswith("container_")}
    expected = {"heron_scheduler", "heron_container-0", "heron_container-1", "services-1", "topology_master-0"}
    assert expected | {"stream_manager-1", "metrics_manager-1"} <= set(control)
    assert control == {title: [] for title in control}


def test_user_code_is_isolated_and_stays_so_after_restarts(heron: HeronCommand) -> None:
    name = unique("Prying")
    heron.submit(name, user.__file__, "Prying", **SETTING)
    first, told = pried(heron, name)
    is_walled_in(told)
    assert "zygote-1" in told["processes"]
    assert f"user code runs as {NOBODY.pw_name}" in heron.run("status", "local", name).stdout
    assert heron.status(name)["code_user"] == NOBODY.pw_name

    # First the instance, then the zygote: the next instance is forked by an executed zygote.
    os.kill(int(first.stem.split("-")[1]), signal.SIGKILL)
    second, told = pried(heron, name, {first})
    is_walled_in(told)
    instance = int(second.stem.split("-")[1])
    # It cannot see its lifeline and no process cleans up: the kernel ends it with its zygote.
    for pid in (leader := heron.pids(name)["heron_container-1"], instance):
        os.kill(pid, signal.SIGSTOP)
    os.kill(zygote(name), signal.SIGKILL)
    wait_until(lambda: has_ended(instance), "the kernel has ended the instance")
    os.kill(leader, signal.SIGCONT)
    is_walled_in(pried(heron, name, {first, second})[1])
    assert not psutil.pid_exists(instance)
    assert {p.read_text() for p in first.parent.glob("streamlet/state/*.log")} == {"kept"}
    heron.reaches(name, "running")
    heron.kill(name)


def test_executed_instances_are_isolated(heron: HeronCommand) -> None:
    name = unique("Prying")
    heron.submit(name, user.__file__, "Prying", heron__instance__fork=False, **SETTING)
    is_walled_in(pried(heron, name)[1])
    heron.kill(name)


def test_daemons_of_user_code_end_with_it(heron: HeronCommand, folder: Path) -> None:
    run = Run(heron, unique("Daemons"), folder / "written")
    run.folder.mkdir()
    run.folder.chmod(0o777)
    heron.submit(
        run.name, daemon_topology.__file__, "LeavesBehind", "--", str(run.folder), topology__stmgrs=1, **SETTING
    )
    first = run.all_there()
    assert {daemon.uids().real for daemon in run.daemons(first).values()} == {NOBODY.pw_uid}
    os.kill(first, signal.SIGKILL)
    second = run.all_there(other_than=first)
    run.gone(first)
    os.kill(run.leader(), signal.SIGKILL)
    third = run.all_there(other_than=second)
    run.gone(second)
    os.kill(run.leader(), signal.SIGKILL)
    nothing_survives(run, {first, second, third})


def test_status_warns_without_the_setting(heron: HeronCommand) -> None:
    name = unique("Prying")
    heron.submit(name, user.__file__, "Prying")
    told = pried(heron, name)[1]
    assert told["uids"] == [0, 0, 0]
    said = " ".join(heron.run("status", "local", name).stdout.split())
    assert "user code runs as the user of Heronry's own processes, and can read the topology's key" in said
    assert heron.status(name)["code_user"] is None
    heron.kill(name)


@pytest.mark.parametrize(
    ("given", "code", "said"),
    [
        ("nobody-of-that-name", 2, "unknown user 'nobody-of-that-name' on this host"),
        ("root", 2, "root is root"),
    ],
)
def test_unsuitable_user_is_rejected(heron: HeronCommand, given: str, code: int, said: str) -> None:
    name = unique("Prying")
    given = f"heron.user.code.user={given}"
    done = heron.run("submit", "local", "--name", name, "--config-property", given, user.__file__, "Prying", code=code)
    assert said in " ".join(done.stderr.split())
    assert not list((heron.home / "topologies").rglob(name))


def test_submit_without_permission_to_change_users_is_rejected(heron: HeronCommand) -> None:
    heron.command = ["setpriv", "--bounding-set=-all", "--inh-caps=-all", "--ambient-caps=-all", *heron.command[-3:]]
    name = unique("Prying")
    given = f"heron.user.code.user={NOBODY.pw_name}"
    done = heron.run("submit", "local", "--name", name, "--config-property", given, user.__file__, "Prying", code=5)
    assert "only root can run user code as nobody" in " ".join(done.stderr.split())


def test_home_that_the_user_cannot_reach_is_named(folder: Path) -> None:
    closed = folder / "closed"
    closed.mkdir(mode=0o700)
    with heron_command(closed) as heron:
        heron.command = [*way_to_the_interpreter(), *heron.command]
        name = unique("Prying")
        given = f"heron.user.code.user={NOBODY.pw_name}"
        done = heron.run("submit", "local", "--name", name, "--config-property", given, user.__file__, "Prying", code=5)
        assert "as nobody no instance can run" in " ".join(done.stderr.split())
