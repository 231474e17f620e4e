"""Policy for failing records: their location, their limit, and failure of the topology."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from heron_runtime.failures import UsageError
from heronry.streamlet import Builder, collect, files, to_files
from heronry.streamlet.aside import FailurePolicy, policy_of
from heronry.streamlet.errors import StepFailed
from heronry.streamlet.reference import run
from heronry.streamlet.results import read
from tests.support.streamlets.online_engine import OnlineEngine, definition_of, importable

LINES = ['{"n": 1}', "", "no json", '{"n": 0}', '{"n": 4}', '{"n": "text"}', '{"m": 1}', '{"n": 5}']
WRONG = [("source", 3), ("divide", 4), ("source", 6), ("divide", 7)]


def dirty(folder: Path, **config: Any) -> Builder:
    place = folder / "in" / "dirty.json"
    place.parent.mkdir()
    place.write_text("\n".join(LINES))
    builder = Builder("dirty", {"user.streamlet.folder": f"{folder}/state", **config})
    source = builder.source(files(folder / "in", "json", schema={"n": "int"}))
    divided = source.map(lambda record: 20 // record["n"], name="divide")
    divided.sink(to_files(folder / "out"), name="out")
    divided.key_by().count_by_key(name="counts").sink(collect(), name="counted")
    return builder


def places(letters: list[dict[str, Any]], folder: Path) -> list[tuple[str, int]]:
    found = [(line["step"], line["where"].partition(", line ")) for line in letters]
    assert {name for _, (name, _, _) in found} == {f"{folder}/in/dirty.json"}
    return sorted(((step, int(number)) for step, (_, _, number) in found), key=lambda pair: pair[1])


def online(builder: Builder, folder: Path, seconds: float) -> list[dict[str, Any]]:
    with importable(builder):
        world = OnlineEngine(definition_of(builder), folder, 0)
        if seconds:
            world.run_on(seconds)
            assert not world.is_final()
        else:
            world.until_final()
        world.stop()
    written = sorted((folder / "state" / "failed").glob("*.jsonl"))
    return [json.loads(line) for file in written for line in file.read_text().splitlines()]


def test_letter_has_file_and_line(tmp_path: Path) -> None:
    letters = online(dirty(tmp_path), tmp_path, 0)
    assert places(letters, tmp_path) == WRONG
    assert sorted(read(tmp_path / "out")) == [4, 5, 20]
    assert [line["record"] for line in letters if line["step"] == "divide"] == [{"n": 0}, {"n": None}]


def test_reference_writes_the_same_letters_if_requested(tmp_path: Path) -> None:
    letters: list[dict[str, Any]] = []
    program = dirty(tmp_path).build()
    found = run(program, failed=letters)
    assert places(letters, tmp_path) == WRONG
    assert sorted(found["out"]) == [4, 5, 20]
    assert sorted(tuple(result) for result in found["counted"]) == [(4, 1), (5, 1), (20, 1)]
    with pytest.raises((StepFailed, ValueError)):
        run(program)


@pytest.mark.parametrize(
    ("config", "says"),
    [
        ({"user.streamlet.aside.most": 2}, "has put 2 records aside, as many as user.streamlet.aside.most allows"),
        ({"user.streamlet.on.error": "fail"}, "dirty.json, line 3: no JSON"),
    ],
)
def test_limit_or_fail_policy_fails_the_topology(tmp_path: Path, config: dict[str, Any], says: str) -> None:
    """All tasks restore the last checkpoint and meet the record again until the topology has failed."""
    with pytest.raises(AssertionError, match=f"the topology has failed: .*{says}"):
        online(dirty(tmp_path, **config), tmp_path, 20)
    assert not list((tmp_path / "state" / "failed").glob("*.jsonl")), "nothing of it was committed"
    assert list(read(tmp_path / "out")) == []


def misspelt(folder: Path, records: list[dict[str, Any]]) -> Builder:
    place = folder / "in" / "clicks.json"
    place.parent.mkdir()
    place.write_text("\n".join(map(json.dumps, records)))
    builder = Builder("misspelt", {"user.streamlet.folder": f"{folder}/state"})
    clicks = builder.source(files(folder / "in", "json"))
    clicks.key_by("usr").count_by_key(name="counts").sink(collect(), name="counted")
    return builder


def test_misspelt_key_fails_the_topology_with_a_hint(tmp_path: Path) -> None:
    says = "all of the first 100 records of task .* failed; step .*no field .usr., it has .user."
    with pytest.raises(AssertionError, match=f"the topology has failed: .*{says}"):
        online(misspelt(tmp_path, [{"user": n} for n in range(150)]), tmp_path, 20)


def test_bad_records_among_good_ones_become_letters(tmp_path: Path) -> None:
    records = [{"user": n} for n in range(50)] + [{"usr": 1}] + [{"user": n} for n in range(150)]
    assert len(online(misspelt(tmp_path, records), tmp_path, 0)) == 200


def test_policy_is_validated_at_submission(tmp_path: Path) -> None:
    assert policy_of({}) == FailurePolicy(True, 10_000)
    assert policy_of({"user.streamlet.on.error": "fail", "user.streamlet.aside.most": "7"}) == FailurePolicy(False, 7)
    for key, value in (("on.error", "asid"), ("aside.most", -1)):
        builder = Builder("p", {f"user.streamlet.{key}": value})
        builder.source([1]).sink(collect())
        with pytest.raises(UsageError, match=key):
            definition_of(builder)
