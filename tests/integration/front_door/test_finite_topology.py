"""A topology over bounded sources is *finished* once all input is processed, and not before."""

from __future__ import annotations

import json
from pathlib import Path

from heron_runtime.wire.container import AT_END
from tests.support.heron_command import heron_command, unique
from tests.support.waiting import wait_until

TOPOLOGIES = Path(__file__).with_name("ending_topology.py")
NUMBERS = 5_000  # as in the topology


def test_finished_topology_with_state_has_committed_everything(tmp_path: Path) -> None:
    with heron_command(tmp_path) as heron:
        name = unique("Ends")
        heron.submit(name, TOPOLOGIES, "Kept", "--", str(tmp_path))
        heron.reaches(name, "finished")
        rows = [json.loads(line) for file in (tmp_path / "out").glob("*") for line in file.read_text().splitlines()]
        assert sorted(row["number"] for row in rows) == list(range(NUMBERS))
        assert [row["state"] for row in heron.json("list", "local")] == ["finished"]
        spouts = [p for p in heron.status(name)["processes"] if p["component"] == "numbers"]
        assert [spout["doing"] for spout in spouts] == [AT_END] * 2
        heron.run("deactivate", "local", name)
        assert heron.status(name)["state"] == "paused"
        heron.kill(name)


def test_topology_with_acks_finishes_after_the_last_ack(tmp_path: Path) -> None:
    with heron_command(tmp_path) as heron:
        name = unique("Acked")
        heron.submit(name, TOPOLOGIES, "Acked", "--", str(tmp_path))

        def failed() -> float:  # the metric does not exist at first
            return heron.totals(name).get("few", {}).get("__fail-count/default", 0)

        wait_until(lambda: failed() > 100, "what fails is emitted again")
        assert heron.status(name)["state"] != "finished"
        (tmp_path / "go").touch()
        heron.reaches(name, "finished")
        heron.kill(name)
