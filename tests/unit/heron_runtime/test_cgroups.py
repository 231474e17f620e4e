"""Location of control groups from kernel files, and real groups where this machine permits them."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from heron_runtime import cgroups
from heron_runtime.cgroups import FREEZER, VERSION_2, ControlGroup, group_of, groups_of, places
from heron_runtime.launch import Launch

pytestmark = pytest.mark.timeout(60)

UNIFIED = "30 23 0:26 / /sys/fs/cgroup rw,nosuid,nodev shared:4 - cgroup2 cgroup2 rw,nsdelegate\n"
HYBRID = (
    "40 39 0:29 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n"
    "41 39 0:30 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu,cpuacct\n"
    "42 39 0:31 / /sys/fs/cgroup/freezer rw - cgroup cgroup rw,freezer\n"
    "25 20 0:23 / /proc rw - proc proc rw\n"
)
SCOPE = "user.slice/user-1000.slice/user@1000.service/app.slice/run-7.scope"


@pytest.mark.parametrize(
    ("mountinfo", "own", "found"),
    [
        (UNIFIED, f"0::/{SCOPE}\n", [(VERSION_2, f"/sys/fs/cgroup/{SCOPE}")]),
        (UNIFIED, f"0::/{SCOPE}/heronry-0123abcd-1\n", [(VERSION_2, f"/sys/fs/cgroup/{SCOPE}")]),
        (UNIFIED, "0::/heronry-0123abcd-1/of-user-code\n", [(VERSION_2, "/sys/fs/cgroup")]),
        (
            HYBRID,
            "3:freezer:/a\n2:cpu,cpuacct:/b\n1:name=systemd:/c\n0::/d\n",
            [(VERSION_2, "/sys/fs/cgroup/unified/d"), (FREEZER, "/sys/fs/cgroup/freezer/a")],
        ),
        (HYBRID, "3:freezer:/\n", [(FREEZER, "/sys/fs/cgroup/freezer")]),
        # A container sees its own group as the root, or as a part of the host's tree.
        (UNIFIED.replace(" / /sys", " /docker/7 /sys"), "0::/docker/7/x\n", [(VERSION_2, "/sys/fs/cgroup/x")]),
        (UNIFIED.replace(" / /sys", " /docker/7 /sys"), "0::/elsewhere\n", []),
        (UNIFIED.splitlines()[0].replace("cgroup2", "tmpfs"), "0::/\n", []),
        ("", "0::/\n", []),
    ],
)
def test_control_groups_are_created_below_the_own_group(mountinfo: str, own: str, found: list[tuple[str, str]]) -> None:
    assert places(mountinfo, own) == [(kind, Path(path)) for kind, path in found]


def launch_of(runtime_dir: Path) -> Launch:
    return Launch("local", "ada", "default", "words", "words-1", "memory://", "/", str(runtime_dir))


def test_cgroup_file_may_name_only_the_containers_group(tmp_path: Path) -> None:
    launch = launch_of(tmp_path / "0123abcd")
    folder = tmp_path / "0123abcd"
    folder.mkdir()
    assert group_of(launch, 1) is None
    for name in ("/etc", "heronry-0123abcd-1", "/x/heronry-0123abcd-2", "/x/heronry-deadbeef-1", "\0"):
        (folder / "container1.cgroup").write_text(name)
        assert group_of(launch, 1) is None, name
    (folder / "container1.cgroup").write_text("/x/heronry-0123abcd-1")
    assert groups_of(launch) == {1: ControlGroup(Path("/x/heronry-0123abcd-1"))}
    assert ControlGroup(Path("/x/heronry-0123abcd-1")).end(), "one that is gone has ended"


def usable(kind: str) -> Path | None:
    found = places(Path("/proc/self/mountinfo").read_text(), Path("/proc/self/cgroup").read_text())
    return next((folder for k, folder in found if k == kind and cgroups._may_use(folder)), None)


@pytest.fixture(params=[VERSION_2, FREEZER])
def group(request: pytest.FixtureRequest) -> Iterator[ControlGroup]:
    """Create a real group of each kind."""
    above = usable(request.param)
    if above is None:
        pytest.skip(f"no control group may be made here by {request.param}")
    made = ControlGroup(above / f"heronry-{os.getpid():08x}-1")
    made.folder.mkdir()
    yield made
    assert made.end()


def born_in(group: ControlGroup, code: str) -> subprocess.Popen[str]:
    """Start a process in the group and wait for its first line."""
    enters = f"open({str(group.folder / cgroups.PROCS)!r}, 'w').write('0')\n"
    child = subprocess.Popen([sys.executable, "-c", enters + code], stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    assert child.stdout.readline() == "ready\n"
    return child


FORKS_FOR_EVER = """
import os, time
if os.fork():
    print("ready", flush=True)
    os._exit(0)
os.setsid()
while True:  # a new process takes the old one's place, again and again
    if os.fork():
        os._exit(0)
"""


def test_endlessly_forking_process_is_killed_with_its_group(group: ControlGroup) -> None:
    with born_in(group, FORKS_FOR_EVER) as child:
        child.wait()
        assert group.end()
    assert not group.folder.exists()
    assert group.members() == []
    assert group.end(), "once more does no harm"


def test_processes_of_a_nested_group_are_killed(group: ControlGroup) -> None:
    (group.folder / "below").mkdir()
    with born_in(
        ControlGroup(group.folder / "below"), "print('ready', flush=True)\nimport time\ntime.sleep(60)"
    ) as child:
        assert group.members() == [child.pid]
        assert not group.remove(), "not while somebody is in it"
        assert group.end()
    assert not group.folder.exists()


def test_process_leaves_its_own_group_before_ending_it(group: ControlGroup) -> None:
    code = (
        "from pathlib import Path\nfrom heron_runtime.cgroups import ControlGroup\n"
        f"print('ready', flush=True)\nprint(ControlGroup(Path({str(group.folder)!r})).end(), flush=True)\n"
    )
    with born_in(group, code) as child:
        assert child.communicate(timeout=60)[0] == "True\n"
    assert not group.folder.exists()
