"""Access of user code to Heronry's processes under the same user, and the secrets that its own process holds."""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.front_door import prying_topology as user
from tests.support.heron_command import HeronCommand, heron_command, unique
from tests.support.waiting import wait_until

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="/proc and prctl are Linux's"),
    pytest.mark.skipif(os.geteuid() != 0, reason="looks at processes that hide from their own user"),
]
# Root without a capability has the permissions of an ordinary user.
ORDINARY = ("setpriv", "--bounding-set=-all", "--inh-caps=-all", "--ambient-caps=-all")


@pytest.fixture
def heron(tmp_path: Path) -> Iterator[HeronCommand]:
    """Yield the command without privileges."""
    with heron_command(tmp_path) as made:
        made.command = [*ORDINARY, *made.command]
        yield made


def memory_of(pid: int) -> Iterator[bytes]:
    """Yield the writable mapped memory of a process, as far as it can be read."""
    with open(f"/proc/{pid}/maps") as maps, open(f"/proc/{pid}/mem", "rb", 0) as memory:
        for line in maps:
            span, modes, *_ = line.split()
            if modes.startswith("rw"):
                begin, end = (int(part, 16) for part in span.split("-"))
                with contextlib.suppress(OSError):
                    memory.seek(begin)
                    yield memory.read(end - begin)


def test_control_processes_are_unreadable_and_instances_hold_no_cluster_key(heron: HeronCommand) -> None:
    name = unique("Prying")
    heron.submit(name, user.__file__, "Prying")
    home = Path(heron.submitted[name][0]["home"])
    (file,) = wait_until(lambda: list(home.glob("pried-*.json")), "user code has looked")
    told = json.loads(file.read_text())
    assert told["child"] == list(user.LOOKS), "it can see what is its own"
    control = (
        "heron_scheduler", "heron_container-0", "heron_container-1", "zygote-1", "services-1", "topology_master-0",
        "stream_manager-1", "metrics_manager-1",
    )  # fmt: skip
    seen = {title: set(told["processes"][title]) & set(user.LOOKS) for title in control}
    assert seen == {title: set() for title in control}

    secret = (home / "secret").read_text().strip()
    key = (home / "key.pem").read_text().splitlines()[1]
    pids = heron.pids(name)
    held = {
        title: pid for title, pid in pids.items() if any(s.encode() in m for m in memory_of(pid) for s in (secret, key))
    }
    assert "stream_manager-1" in held, "it can be found where it is"
    assert not {title for title in held if title.startswith("container_")} - {"container_1_pry_2"}  # it reads the files
    assert secret not in str(told["environ"])
    heron.kill(name)
