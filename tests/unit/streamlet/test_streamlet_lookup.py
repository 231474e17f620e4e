"""Lookup of stream records in a small table: matches, and errors of the table or of a record."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pytest

from data_pipeline.core.planner import plan
from heronry import TopologyError
from heronry.streamlet import Builder, Matched, collect, files, sequence, to_files
from heronry.streamlet.errors import StepFailed
from heronry.streamlet.lookup import LookupTable, LookupTableError
from heronry.streamlet.program import LookupStep
from heronry.streamlet.reference import run
from heronry.streamlet.results import read
from tests.support.streamlets.online_engine import OnlineEngine, definition_of, importable


def matched(records: list[Any], table: Any, **how: Any) -> list[Matched]:
    builder = Builder("p")
    builder.source(records).lookup(table, on="k", **how).sink(collect(), name="out")
    return run(builder.build())["out"]


def test_lookup_emits_every_matching_row_by_key_equality() -> None:
    records, rows = [{"k": 1}, {"k": "b"}], [{"id": 1.0, "n": 1}, {"id": True, "n": 2}, {"id": "c", "n": 3}]
    inner = [Matched({"k": 1}, rows[0]), Matched({"k": 1}, rows[1])]
    assert matched(records, rows, key="id") == inner
    assert matched(records, rows, key="id", how="left") == [*inner, Matched({"k": "b"}, None)]
    assert matched([], rows, key="id") == []
    assert matched(records, [], how="left") == [Matched(record, None) for record in records]


def test_table_file_is_found_online_at_its_absolute_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "ads.csv").write_text("ad,advertiser\n1,Ann\n2,Bo\n")
    monkeypatch.chdir(tmp_path)
    builder = Builder("clicks", {"user.streamlet.folder": str(tmp_path / "own")})
    clicks = builder.source(sequence(300, lambda n: {"ad": n % 3}), parallelism=2)
    named = clicks.lookup(files("ads.csv", "csv", schema={"ad": "int", "advertiser": "str"}), on="ad", parallelism=2)
    named.map(lambda found: found.row["advertiser"]).key_by().count_by_key(updates=False).sink(
        to_files("out"), name="o"
    )
    with importable(builder):
        definition = definition_of(builder)
        (own,) = {spec.config["user.streamlet.paths"]["lookup"] for spec in definition.components}
        assert own == str(tmp_path / "ads.csv")
        world = OnlineEngine(definition, tmp_path, 1)
        world.run_on(0.3)
        world.kill(world.plan.tasks_of("lookup")[0])
        world.until_final()
        world.stop()
    assert sorted(read("out")) == sorted(run(builder.build())["o"]) == [("Ann", 100), ("Bo", 100)]


def test_bad_table_fails_the_program_and_no_record(tmp_path: Path) -> None:
    letters: list[dict[str, Any]] = []
    builder = Builder("p")
    builder.source([{"k": 1}]).lookup([{"k": 1}, {}], on="k", name="prices").log()
    with pytest.raises(LookupTableError, match=r"step 'prices': the row \{\} of its table has no key"):
        run(builder.build(), failed=letters)
    assert letters == []
    with pytest.raises(FileNotFoundError, match="nowhere"):
        matched([], files(tmp_path / "nowhere", "csv"))


def test_record_without_the_key_fails_alone() -> None:
    with pytest.raises(StepFailed, match=r"step 'lookup' failed on the record \{'a': 1\}"):
        matched([{"a": 1}], [{"k": 1}])


def test_invalid_table_is_rejected() -> None:
    for table, message in {
        files("x", grows=True): "its table is infinite",
        sequence(): "its table is infinite",
        3: "its table is 3; write files",
    }.items():
        builder = Builder("p")
        builder.source(range(3)).lookup(table, on=None, name="l").log()
        with pytest.raises(TopologyError, match=message):
            builder.build()
    builder = Builder("p")
    builder.source(range(3)).lookup([1], on=None, how="outer").log()
    with pytest.raises(TopologyError, match="how is 'outer'; lookup supports inner and left joins only"):
        builder.build()


def test_table_rows_are_not_pickled_with_the_step() -> None:
    builder = Builder("p")
    builder.source(range(3)).lookup(files("sftp://there/table", "csv"), on=None, name="l").log()
    program = builder.build()
    step = program.by_name["l"]
    assert isinstance(step, LookupStep)
    plan(program)  # each worker reads the table itself
    lookup = LookupTable(LookupStep("l", step.input, sequence(1000), step.table_key, step.on))
    lookup.load()
    assert len(pickle.dumps(lookup)) < 1000
    assert pickle.loads(pickle.dumps(lookup))(7) == [(7, 7)]
