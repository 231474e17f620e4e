"""Lake tables in programs: reads equal the reference at the submitted version.

Writes appear in the table exactly once for any faults.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from heronry import TopologyError
from heronry.connect import lake_source
from heronry.connect.delta_source import DeltaRows
from heronry.connect.lake_source import LakeReader
from heronry.connect.polling import rows_of as read_rows
from heronry.connect.seats import Seat
from heronry.connect.settings import BadConfig, ConnectError
from heronry.streamlet import Builder, delta, iceberg, sequence, to_delta, to_iceberg
from heronry.streamlet.online.locate import FIXED
from tests.support import iceberg_tables
from tests.support.connectors import Recorded, TaskPlace
from tests.support.delta_tables import TYPES, WORDS, arrow, deltalake, make, rows_of, typed, write
from tests.support.streamlets.comparison import difference
from tests.support.streamlets.online_engine import OnlineEngine, definition_of, importable
from tests.support.streamlets.server_programs import differences, in_reference, online, read_all, world
from tests.support.streamlets.server_programs import program as over

COLUMNS = TYPES.names


def reader_of(path: Path, version: int | None, fields: tuple[str, ...]) -> LakeReader:
    return DeltaRows.reader({"user.delta.path": str(path), "user.delta.version": version}, fields, "")


@pytest.fixture
def table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Create a table of sixty rows in six files."""
    monkeypatch.setattr(lake_source, "ROWS_A_READ", 3)
    path = tmp_path / "t"
    for file in range(6):
        write(path, [typed(n) for n in range(file * 10, file * 10 + 10)], TYPES)
    return path


def test_online_reads_every_type_like_the_reference(table: Path, tmp_path: Path) -> None:
    source = delta(table, COLUMNS)
    expected = in_reference(source)
    assert difference(expected["records"], [{**typed(n), "rest": 1 // (n + 1)} for n in range(60)]) == ""
    with_words = in_reference(delta(table, ["n", "word"]))
    for seed in (1, 2):
        found = online(delta(table, ["n", "word"]), tmp_path / str(seed), kills=3, seed=seed)
        assert differences(with_words, found) == {}


def test_source_reads_the_submitted_version(table: Path, tmp_path: Path) -> None:
    source = delta(table, ["n", "word"])
    expected = in_reference(source)
    builder = over(source, tmp_path / "o")
    with importable(builder):
        made = world(builder, tmp_path / "o")
        write(table, [typed(n) for n in range(60, 70)], TYPES)
        deltalake.DeltaTable(str(table)).optimize.compact()
        made.run_on(1.0)
        made.kill(made.random.choice(made.plan.tasks()))
        made.until_final()
        made.stop()
        found = read_all(builder.build(), tmp_path / "o")
    assert differences(expected, found) == {}
    assert len(in_reference(source)["records"]) == 70
    assert differences(expected, in_reference(delta(table, ["n", "word"], version=5))) == {}
    assert builder.definition(variable="program_under_test:program").component("source").config[FIXED] == {
        "source": {"user.delta.version": 7}
    }


def test_partitions_and_later_columns_are_read(tmp_path: Path) -> None:
    path = tmp_path / "t"
    write(path, [{"n": n, "word": word} for n, word in enumerate(["a b", "%20", None])], partition_by=["word"])
    more = arrow.schema([*WORDS, ("late", arrow.float32())])
    write(path, [{"n": 3, "word": "ü/", "late": 0.5}], more, partition_by=["word"], schema_mode="merge")
    reader = reader_of(path, None, ("late", "word", "n"))
    ranges = [reader.bounds(split) for split in reader.splits()]
    found = [tuple(row) for each in ranges if each is not None for rows in read_rows(reader, each) for row in rows]
    assert sorted(found, key=lambda row: row[2]) == [
        (None, "a b", 0), (None, "%20", 1), (None, None, 2), (0.5, "ü/", 3),
    ]  # fmt: skip


def test_position_resumes_and_is_bound_to_its_version(table: Path) -> None:
    reader = reader_of(table, None, ("n",))
    split = reader.splits()[0]
    whole = reader.bounds(split)
    assert whole is not None
    begun = reader.read(split, None, whole.end)
    assert begun is not None
    behind = whole._replace(begin=begun[1])
    rest = [row for rows in read_rows(reader_of(table, 5, ("n",)), behind) for row in rows]
    assert len(begun[0]) + len(rest) == 10
    assert reader.bounds(split, whole.end) is None
    with pytest.raises(ConnectError, match="was being read at version 5, and version 4 is requested"):
        reader_of(table, 4, ("n",)).read(split, begun[1], whole.end)
    write(table, [typed(60)], TYPES)
    newest = deltalake.DeltaTable(str(table))
    newest.optimize.compact()
    newest.vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False)
    with pytest.raises(ConnectError, match=r"cannot be read .*if it was removed"):
        reader_of(table, 5, ("n",)).read(split, None, whole.end)


def test_spout_reads_the_configured_version(table: Path) -> None:
    class Rows(Recorded, DeltaRows):
        pass

    config: dict[str, Any] = {"user.delta.path": str(table), "user.delta.version": 1}
    place = TaskPlace("rows", rows=("n",))
    with pytest.raises(BadConfig, match=r"needs config 'user.delta.version'"):
        Rows({}).initialize({"user.delta.path": str(table)}, place)
    spout = Rows({})
    spout.initialize(config, place)
    for _ in range(20):
        spout.next_tuple()
        spout._ask_at = 0.0
    spout.close()
    assert sorted(n for (n,) in spout.found) == list(range(20))


def test_invalid_source_is_rejected_at_submission(table: Path, tmp_path: Path) -> None:
    nested = make(tmp_path / "nested", arrow.schema([("n", arrow.int64()), ("tags", arrow.list_(arrow.string()))]))
    vectors = make(tmp_path / "v", WORDS, configuration={"delta.enableDeletionVectors": "true"})
    mapped = make(tmp_path / "m", WORDS, configuration={"delta.columnMapping.mode": "name"})
    for source, why in (
        (delta(tmp_path / "none", ["n"]), "no Delta table at"),
        (delta(table, ["m"]), "has no column m at version 5; it has n, word"),
        (delta(vectors, ["n"]), "cannot read the Delta table .*, which has deletionVectors"),
        (delta(mapped, ["n"]), "cannot read the Delta table .*, which has column mapping"),
    ):
        with importable(builder := over(source, tmp_path)), pytest.raises(TopologyError, match=why):
            definition_of(builder)
    with pytest.raises(ConnectError, match="has versions up to 5, not version 9"):
        in_reference(delta(table, ["n", "word"], version=9))
    with pytest.raises(ConnectError, match="column tags list"):
        in_reference(delta(nested, ["n", "tags"]))
    with pytest.raises(TopologyError, match="write the whole path"):
        over(delta("lake/t", ["n"]), tmp_path).build()


def test_iceberg_is_read_at_the_submitted_snapshot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lake_source, "ROWS_A_READ", 3)
    iceberg_tables.make(tmp_path, TYPES)
    for file in range(3):
        iceberg_tables.write(tmp_path, [typed(n) for n in range(file * 10, file * 10 + 10)], TYPES)
    source = iceberg(iceberg_tables.catalog_in(tmp_path), "lake.t", COLUMNS)
    expected = in_reference(source)
    assert difference(expected["records"], [{**typed(n), "rest": 1 // (n + 1)} for n in range(30)]) == ""
    source = iceberg(iceberg_tables.catalog_in(tmp_path), "lake.t", ["n", "word"])
    expected = in_reference(source)
    builder = over(source, tmp_path / "o")
    with importable(builder):
        made = world(builder, tmp_path / "o", 1)
        iceberg_tables.write(tmp_path, [typed(n) for n in range(30, 40)], TYPES)
        for _ in range(2):
            made.run_on(1.0)
            made.kill(made.random.choice(made.plan.tasks()))
        made.until_final()
        made.stop()
        assert differences(expected, read_all(builder.build(), tmp_path / "o")) == {}
    assert len(in_reference(source)["records"]) == 40


def writing(sink: Any, folder: Path, count: int = 400) -> Builder:
    """Return a program that writes numbers, some of which do not fit the column."""
    builder = Builder("lake", {"user.streamlet.folder": str(folder)})
    numbers = builder.source(sequence(count), name="numbers", parallelism=2)
    rows = numbers.map(lambda n: {"word": str(n % 7), "n": n if n % 50 else "bad"}, name="rows", parallelism=2)
    rows.sink(sink, name="table")
    return builder


@pytest.mark.parametrize(
    ("seed", "form"), [(1, "delta"), (2, "delta by word"), (3, "iceberg"), (4, "iceberg by bucket")]
)
def test_each_record_is_written_once_for_any_faults(seed: int, form: str, tmp_path: Path) -> None:
    fields, parts = ["word", "n"], 7 if " by " in form else 1
    if form.startswith("delta"):
        sink = to_delta(make(tmp_path / "t", partition_by=["word"] if parts > 1 else []), fields, partitions=parts)
    else:
        iceberg_tables.make(tmp_path, by=(("word", "bucket[7]"),) if parts > 1 else ())
        sink = to_iceberg(iceberg_tables.catalog_in(tmp_path), "lake.t", fields, partitions=parts)
    builder = writing(sink, tmp_path / "o")
    with importable(builder):
        made = OnlineEngine(definition_of(builder), tmp_path, seed)
        for _ in range(4):
            made.run_on(1.1)
            made.kill(made.random.choice(made.plan.tasks()))
        made.rescale({"rows": 1})
        made.until_final()
        made.stop()
    expected = [{"word": str(n % 7), "n": n} for n in range(400) if n % 50]
    found = rows_of(tmp_path / "t") if form.startswith("delta") else iceberg_tables.rows_of(tmp_path)
    assert sorted(found, key=lambda row: int(row["n"])) == expected
    letters = [json.loads(line) for file in tmp_path.rglob("*.jsonl") for line in file.read_text().splitlines()]
    assert sorted(letter["record"] for letter in letters) == list(range(0, 400, 50))
    assert "field 'n' is 'bad' (str), and the column holds int" in letters[0]["error"]


def test_two_programs_and_their_source_share_a_table(tmp_path: Path) -> None:
    path = make(tmp_path / "t")
    write(path, [{"word": "first", "n": 1}])
    for name in ("one", "other"):
        builder = Builder(name, {"user.streamlet.folder": str(tmp_path / name)})
        builder.source(delta(path, ["word", "n"]), name="in", parallelism=1).sink(
            to_delta(path, ["word", "n"]), name="out"
        )
        with importable(builder):
            made = OnlineEngine(definition_of(builder), tmp_path, 1)
            made.until_final()
            made.stop()
    assert rows_of(path) == [{"word": "first", "n": 1}] * 4


def test_invalid_target_table_is_rejected_at_task_start(tmp_path: Path) -> None:
    seat = Seat("step", 1, "life")
    with pytest.raises(ConnectError, match="DeltaSink: no Delta table at"):
        to_delta(tmp_path / "none", ["n"]).open(seat)
    with pytest.raises(BadConfig, match=r"fields n, m, and the Delta table .*: unknown column m"):
        to_delta(make(tmp_path / "t"), ["n", "m"]).open(seat)
    builder = Builder("lake")
    builder.source(sequence(1), name="numbers").sink(to_delta("lake/t", ["n"]), name="table")
    with pytest.raises(TopologyError, match="write the whole path"):
        builder.build()
