"""``heron submit --replace`` with a version that cannot start: the previous version runs again."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.heron_command import HeronCommand, unique

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
