"""A topology whose sources are read to their end is *finished*: when all is through, and not before."""

from __future__ import annotations

import json
from pathlib import Path

from front_door import front_door, unique

from heron_runtime.wire.container import AT_END
from tests.support.waiting import wait_until

TOPOLOGIES = Path(__file__).with_name("ending_topology.py")
NUMBERS = 5_000  # as there


def test_where_state_is_kept_everything_is_committed(tmp_path: Path) -> None:
    with front_door(tmp_path) as door:
        name = unique("Ends")
        door.submit(name, TOPOLOGIES, "Kept", "--", str(tmp_path))
        door.reaches(name, "finished")
        rows = [json.loads(line) for file in (tmp_path / "out").glob("*") for line in file.read_text().splitlines()]
        assert sorted(row["number"] for row in rows) == list(range(NUMBERS))
        assert [row["state"] for row in door.json("list", "local")] == ["finished"]
        spouts = [p for p in door.status(name)["processes"] if p["component"] == "numbers"]
        assert [spout["doing"] for spout in spouts] == [AT_END] * 2
        door.heron("deactivate", "local", name)
        assert door.status(name)["state"] == "paused"
        door.kill(name)


def test_with_acks_it_is_not_before_the_last_of_them(tmp_path: Path) -> None:
    with front_door(tmp_path) as door:
        name = unique("Acked")
        door.submit(name, TOPOLOGIES, "Acked", "--", str(tmp_path))

        def failed() -> float:  # nothing is known of it at first
            return door.totals(name).get("few", {}).get("__fail-count/default", 0)

        wait_until(lambda: failed() > 100, "what fails is emitted again")
        assert door.status(name)["state"] != "finished"
        (tmp_path / "go").touch()
        door.reaches(name, "finished")
        door.kill(name)
