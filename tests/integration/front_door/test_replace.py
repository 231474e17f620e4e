"""``heron submit --replace``: the old topology continues, or the new one takes over its state.

If the new version cannot start, the previous version runs again.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from heron_runtime.model.topology import TopologyState
from heron_runtime.state import open_store, paths
from heron_runtime.wire import message_codecs
from tests.integration.front_door import update_topology as user
from tests.integration.front_door.kept_counts import KeptCounts
from tests.support.heron_command import Done, HeronCommand, heron_command, unique
from tests.support.waiting import wait_until


@dataclass
class Replaced(KeptCounts):
    """Running topology and its replacement."""

    heron: HeronCommand
    name: str
    folder: Path

    def command(self, topology: str, *more: str) -> tuple[str, ...]:
        options = ("--name", self.name, "--replace", *more)
        return ("submit", "local", user.__file__, topology, *options, "--", str(self.folder))

    def replace(self, topology: str, *more: str, code: int = 0) -> Done:
        done = self.heron.run(*self.command(topology, *more), code=code)
        if code == 0:
            self.heron.remember(self.name)
        return done

    def begin(self, topology: str, until: str) -> subprocess.Popen[str]:
        """Start the command and return it once it has printed this."""
        process = self.heron.start(*self.command(topology, "--allow-dropped-state"))
        assert process.stderr is not None
        for line in process.stderr:
            if until in line:
                return process
        raise AssertionError(f"it never said {until!r}")

    def goes_on(self) -> None:
        before = self.every_count_is_there_once()
        wait_until(lambda: self.every_count_is_there_once() > before + 50, "it goes on, each count once")

    def has_ended(self, topology_id: str) -> bool:
        """Return True once the store marks the topology as killed."""
        store = open_store((self.heron.home / "state").as_uri().replace("file:", "files:", 1))
        store.open()
        try:
            node = store.get(paths.execution_state(self.name))
        finally:
            store.close()
        found = message_codecs.EXECUTION_STATE.decode(node.data) if node is not None else None
        return found is None or found.topology_id != topology_id or found.state is TopologyState.KILLED

    @property
    def topology_id(self) -> str:
        (place,) = (self.heron.home / "topologies" / "local").glob(f"*/default/{self.name}")
        return str(json.loads((place / "launch.json").read_text())["topology_id"])


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Replaced]:
    """Yield a topology that has counted for a while."""
    folder = tmp_path_factory.mktemp("replaced")
    with heron_command(folder) as heron:
        name = unique("Kept")
        heron.submit(name, user.__file__, "Kept", "--", str(folder))
        wait_until((folder / "out").exists, "the sink is there")
        found = Replaced(heron, name, folder)
        wait_until(lambda: found.every_count_is_there_once() > 100, "counts are written")
        yield found
        heron.kill(name)


def test_old_topology_continues_if_the_replace_is_interrupted_while_draining(running: Replaced) -> None:
    before = running.topology_id
    stopped = next(pid for name, pid in running.heron.pids(running.name).items() if "_count_" in name)
    for number, code, word in ((signal.SIGINT, 130, "running"), (signal.SIGKILL, -9, "paused")):
        os.kill(stopped, signal.SIGSTOP)  # so that the drain does not end
        process = running.begin("Later", "is drained; if this command is killed now, `heron activate")
        running.heron.reaches(running.name, "paused")
        process.send_signal(number)
        said = process.communicate(timeout=120)[1]
        os.kill(stopped, signal.SIGCONT)
        assert process.returncode == code, said
        assert running.topology_id == before
        running.heron.reaches(running.name, word)
        if word == "paused":
            running.heron.run("activate", "local", running.name)
            left = [
                *running.heron.home.glob(".submit-*"),
                *running.heron.home.glob(f"topologies/local/*/*/.{running.name}.*"),
            ]
            for folder in left:  # a command that was killed while preparing left these; they do no harm
                shutil.rmtree(folder)
        running.goes_on()


@pytest.mark.core
def test_new_topology_takes_over_the_state_after_the_point_of_no_return(running: Replaced) -> None:
    before, generation = running.topology_id, running.heron.status(running.name)["tasks_state"]["generation"]
    process = running.begin("Later", "if the new one does not start")
    wait_until(lambda: running.has_ended(before), "the old one is killed", poll=0.01)
    process.send_signal(signal.SIGINT)
    said = process.communicate(timeout=120)[1]
    assert process.returncode == 130, said
    assert "is replaced, and continues to start" in said
    running.heron.remember(running.name)
    assert running.topology_id != before
    running.heron.reaches(running.name, "running")
    running.goes_on()
    assert running.heron.status(running.name)["tasks_state"]["generation"] > generation
    rows = [row for row in running.heron.json("checkpoint", "list", "local", running.name) if row["name"]]
    assert [row["name"] for row in rows] == [f"upgrade-{rows[0]['checkpoint']}"]
    running.heron.run("checkpoint", "delete", "local", running.name, rows[0]["name"])


CODE = """
import time
from heronry import BasicBolt, Spout, Topology

class Words(Spout):
    outputs = ["word"]
    def next_tuple(self):
        self.emit(["w"])
        time.sleep(0.01)

class Count(BasicBolt):
    def initialize(self, config, context):
        if {bad}:
            raise KeyError("no such setting")
    def process(self, tup):
        pass

class Version(Topology):
    config = {{
        "topology.reliability.mode": "{mode}", "topology.stateful.checkpoint.interval.secs": 0.5, "user.limit": {limit}
    }}
    words = Words.spec()
    count = Count.spec(inputs=[words])
"""


@pytest.mark.parametrize("mode", ["ATMOST_ONCE", "EFFECTIVELY_ONCE"])
def test_replace_rolls_back_to_the_previous_version_if_the_new_one_cannot_start(
    heron: HeronCommand, tmp_path: Path, mode: str
) -> None:
    file, name = tmp_path / "version.py", unique("version")
    file.write_text(CODE.format(bad=False, mode=mode, limit=7))
    heron.submit(name, file, "Version")
    file.write_text(CODE.format(bad=True, mode=mode, limit=9))
    done = heron.run("submit", "local", str(file), "Version", "--name", name, "--replace", code=1)
    assert f"note: replacing {name} changes user.limit: 7 before, 9 now" in done.stderr
    assert "KeyError: 'no such setting'" in done.stderr
    assert "The previous version runs again" in done.stderr
    assert ("from checkpoint" in done.stderr) == (mode == "EFFECTIVELY_ONCE")
    assert "heron restore" not in done.stderr
    heron.remember(name)
    assert heron.json("status", "local", name)["state"] == "running"
    heron.kill(name)
