"""Ends of a topology: ``heron kill --drain`` and *finished* come after all input is processed, and not before."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

from heron_runtime.wire.container import AT_END
from tests.integration.front_door import update_topology as user
from tests.support.heron_command import HeronCommand, heron_command, unique
from tests.support.waiting import wait_until


def executed(heron: HeronCommand, name: str, component: str) -> float:
    """Return how many tuples a component has executed."""
    totals = heron.totals(name).get(component, {})
    return sum(total for metric, total in totals.items() if metric.startswith("__execute-count"))


def test_drain_commits_all_records_read(tmp_path: Path) -> None:
    with heron_command(tmp_path) as heron:
        name = unique("Kept")
        heron.submit(
            name, user.__file__, "Kept", "--", str(tmp_path), topology__stateful__checkpoint__interval__secs=3600
        )
        wait_until(lambda: executed(heron, name, "count") > 0, "a number is counted")
        said = heron.run("kill", "local", name, "--drain").stderr
        assert "its last checkpoint" in said
        heron.nothing_is_left(name)
    rows = [json.loads(line) for path in (tmp_path / "out").iterdir() for line in path.read_text().splitlines()]
    left = [path.name for path in (tmp_path / "out").glob(".*") if "-done-" not in path.name]
    assert not left, "nothing is left that was prepared"
    counts = Counter(row["number"] for row in rows)
    assert counts, "without a drain nothing would be seen: no checkpoint was taken before it"
    assert {(r["number"], r["count"]) for r in rows} == {(n, c + 1) for n, most in counts.items() for c in range(most)}


def test_drain_with_acks_leaves_no_tuple_in_flight(tmp_path: Path) -> None:
    with heron_command(tmp_path) as heron:
        name = unique("WithAcks")
        heron.submit(name, user.__file__, "WithAcks", "--", str(tmp_path), heron__heartbeat__interval__ms=200)
        wait_until((tmp_path / "acked").exists, "some are acked")
        heron.run("kill", "local", name, "--drain")
        heron.nothing_is_left(name)


def test_drain_that_is_impossible_or_times_out_does_not_kill(tmp_path: Path) -> None:
    with heron_command(tmp_path) as heron:
        name = unique("Kept")
        heron.submit(name, user.__file__, "Kept", "--", str(tmp_path), topology__reliability__mode="ATMOST_ONCE")
        assert "nothing tells when the tuples of" in heron.run("kill", "local", name, "--drain", code=2).stderr
        assert heron.status(name)["state"] == "running"
        heron.kill(name)
        name = unique("Stuck")
        heron.submit(
            name, user.__file__, "Kept", "--", str(tmp_path), topology__stateful__checkpoint__interval__secs=3600
        )
        heron.run("checkpoint", "create", "local", name, "--wait")
        parts = next((heron.home / "topologies" / "local").glob(f"*/default/{name}/checkpoints")) / "parts"
        parts.rename(parts.with_name("away"))
        parts.write_text("no folder")
        done = heron.run("kill", "local", name, "--drain", "--drain-timeout", "20", code=1)
        assert f"{name} is not drained, and not killed" in done.stderr
        assert "it resumes" in done.stderr
        parts.unlink()
        parts.with_name("away").rename(parts)
        heron.reaches(name, "running")
        heron.kill(name)


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
