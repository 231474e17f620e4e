"""Micro-batches on Spark into real servers and tables: each record once, whichever process is killed.

Replaced results equal those of a batch. ``test_spark_stream_laws.py`` tries every point of death.
"""

from __future__ import annotations

import io
import json
import os
import runpy
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from data_pipeline.shell.job import compute_result
from data_pipeline.shell.program import Loaded
from data_pipeline.shell.request import Request, Streaming
from data_pipeline.shell.resolved_request import resolve_request
from heronry.connect.settings import ConnectError
from heronry.streamlet import Builder, files, to_files, to_iceberg, to_kafka, to_nats, to_table
from heronry.streamlet.program import Program
from heronry.streamlet.results import read
from tests.support import iceberg_tables
from tests.support.delta_tables import make, rows_of
from tests.support.server_process import running_server
from tests.support.servers.kafka import KafkaMock
from tests.support.servers.nats import NatsServer
from tests.support.servers.postgres import PostgresServer

HERE = Path(__file__).parent
ROWS_A_FILE = 500
PROGRAM = """
import sys
from heronry.streamlet import Builder, files, to_delta, to_table

folder, dsn, password, table = sys.argv[1:]
words = Builder("words")
records = words.source(files(folder, "json", schema={"id": "int", "word": "str"}), name="in")  # so SQL counts
records.sink(to_table(dsn, "records", ["id", "word"], password_file=password), name="records")
numbers = records.map(lambda record: {"n": record["id"], "word": record["word"]})
numbers.sink(to_delta(table, ["n", "word"]), name="lake")
counts = records.key_by("word").count_by_key(name="counts")
counts.sink(to_table(dsn, "sums", ["key", "value"], key="key", password_file=password), name="sums")
"""


@pytest.fixture(scope="module")
def postgres() -> Iterator[PostgresServer]:
    with running_server(PostgresServer) as made:
        made.ask("CREATE TABLE records (id int, word text)")
        made.ask("CREATE TABLE plain (id int, word text)")
        made.ask("CREATE TABLE sums (key text PRIMARY KEY, value bigint)")
        yield made


def arrive(folder: Path, numbers: range, a_file: int = ROWS_A_FILE) -> None:
    """Write numbers to several files."""
    folder.mkdir(exist_ok=True)
    for first in numbers[::a_file]:
        lines = [json.dumps({"id": n, "word": f"wörd {n % 7}"}) for n in range(first, first + a_file)]
        (folder / f"{first}.json").write_text("\n".join(lines))


def streams(spark: SparkSession, program: Program, folder: Path, most: int = 2, **more: Any) -> tuple[str, str]:
    """Return the command's standard output and messages."""
    said = io.StringIO()
    streaming = Streaming(str(folder / "checkpoint"), None, most)
    request = Request(Path("p.py"), output_path=str(folder / "out"), streaming=streaming, **more)
    return compute_result(spark, resolve_request(request, Loaded(program, ())), said), said.getvalue()


def test_each_record_is_written_once_when_input_arrives_between_killed_drivers(
    spark: SparkSession, postgres: PostgresServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each micro-batch has two files: the first is settled, the tasks of the second have staged, the third is owed."""
    file, folder, table = tmp_path / "words.py", tmp_path / "in", make(tmp_path / "table")
    file.write_text(PROGRAM)
    told = [str(folder), postgres.dsn, str(postgres.password_file), table]
    files_then = {"settled:0": (3, 1000), "staged:1": (1, 1000), "owed:2": (2, 2000)}
    arrived = 0
    for where, (number, there) in files_then.items():
        arrive(folder, range(arrived, arrived + number * ROWS_A_FILE))
        arrived += number * ROWS_A_FILE
        died = subprocess.run(
            [
                sys.executable, str(HERE / "dying_stream.py"), where, str(file), f"--output-path={tmp_path / 'out'}",
                f"--checkpoint={tmp_path / 'checkpoint'}", "--files=2", "--master=local[2]", "--", *told,
            ],
            capture_output=True, text=True, check=False, timeout=600,
        )  # fmt: skip
        assert died.returncode == -signal.SIGKILL, died.stderr
        assert postgres.ask("SELECT count(*), count(DISTINCT id) FROM records") == [(there, there)], where
        assert ("had appended its records" in died.stderr) == (where == "staged:1")
    monkeypatch.setattr(sys, "argv", [str(file), *told])
    program = runpy.run_path(str(file))["words"].build()
    arrive(folder, range(arrived, arrived + ROWS_A_FILE))
    arrived += ROWS_A_FILE
    for number in range(2):
        printed, said = streams(spark, program, tmp_path)
        if not number:
            assert "still owed its records in servers: lake, records committed now" in said
            assert f"appended records, {ROWS_A_FILE} records, to postgres records at " in printed
        rows = [(n, f"wörd {n % 7}") for n in range(arrived)]
        assert postgres.ask("SELECT id, word FROM records ORDER BY id") == rows
        assert sorted((row["n"], row["word"]) for row in rows_of(table)) == rows
        assert sorted(postgres.ask("SELECT key, value FROM sums")) == sorted(Counter(word for _, word in rows).items())
        assert postgres.left() == [(0, 0)]
    assert len(writers(Path(table))) == 1, "a mark of the table for each micro-batch would stay for ever"
    assert not list((tmp_path / "checkpoint").rglob(".*.tmp"))
    for text in (died.stdout, died.stderr, printed, said):
        assert postgres.password not in text


def writers(table: Path) -> set[str]:
    """Return the writers with marks in the log of a Delta table."""
    lines = [line for file in (table / "_delta_log").glob("*.json") for line in file.read_text().splitlines()]
    return {json.loads(line)["txn"]["appId"] for line in lines if line.startswith('{"txn"')}


def test_all_systems_skip_a_record_that_one_rejects(
    spark: SparkSession, postgres: PostgresServer, brokers: KafkaMock, jetstream: NatsServer, tmp_path: Path
) -> None:
    """The record becomes a dead letter for all systems; data staged by the first pass is discarded."""
    builder, fields = Builder("into"), ["id", "word"]
    records = builder.source(files(tmp_path / "in", "json"), name="in")
    records.sink(to_table(postgres.dsn, "plain", fields, password_file=postgres.password_file), name="table")
    records.sink(to_kafka(brokers.servers, "words", fields, key="word", spool=tmp_path / "kafka"), name="topic")
    into_nats = to_nats(
        jetstream.url, "words.into", fields, spool=tmp_path / "nats", password_file=jetstream.password_file
    )
    records.sink(into_nats, name="subject")
    records.map(lambda record: record["id"]).sink(to_files("/nowhere"), name="lines")
    program = builder.build()
    for number in range(3):
        arrive(tmp_path / "in", range(20 * number, 20 * number + 20), 10)
        (tmp_path / "in" / f"bad{number}.json").write_text(json.dumps({"id": -1, "word": "zero \0 byte"}))
        printed, said = streams(spark, program, tmp_path, 100)
        assert "running again to put such records aside" in said
        assert "appended table, 20 records, to postgres plain at " in printed
        assert f"{number + 1} records that fail are put aside" in printed
    planned, _ = streams(spark, program, tmp_path, dry_run=True)
    assert "by micro-batches table: each micro-batch appends its records, once" in planned
    expected = [(n, f"wörd {n % 7}") for n in range(60)]
    assert sorted(postgres.ask("SELECT id, word FROM plain")) == expected
    messages = [json.loads(message.value()) for message in brokers.messages("words")]
    bodies = [json.loads(body) for body in jetstream.bodies("words")]
    for found in (messages, bodies):
        assert sorted((value["id"], value["word"]) for value in found) == expected
    assert sorted(read(tmp_path / "out" / "lines")) == [n for n, _ in expected]
    assert postgres.left() == [(0, 0)]
    assert [path for place in ("kafka", "nats") for path in (tmp_path / place).iterdir()] == []


def test_program_without_results_appends_and_writes_dead_letters(spark: SparkSession, tmp_path: Path) -> None:
    """The number of properties of the Iceberg table stays constant; a checkpoint older than its table is rejected."""
    iceberg_tables.make(tmp_path)
    builder = Builder("into")
    records = builder.source(files(tmp_path / "in", "json"), name="in")
    sink = to_iceberg(iceberg_tables.catalog_in(tmp_path), "lake.t", ["word", "n"])
    records.map(lambda record: {"word": record["word"], "n": record["id"] + 0}, name="words").sink(sink, name="table")
    program = builder.build()
    for number in range(2):
        arrive(tmp_path / "in", range(20 * number, 20 * number + 20), 10)
        if number:
            (tmp_path / "in" / "bad.json").write_text(json.dumps({"id": "x", "word": "w"}))
        printed, _ = streams(spark, program, tmp_path, 1)
    assert "1 records that fail are put aside" in printed
    assert "step" in (tmp_path / "out" / "_failed.jsonl").read_text()
    assert sorted(row["n"] for row in iceberg_tables.rows_of(tmp_path)) == list(range(40))
    properties = iceberg_tables.opened(tmp_path).load_table("lake.t").properties
    assert len([key for key in properties if key.startswith("heronry.committed.")]) == 1
    older(tmp_path / "checkpoint")
    with pytest.raises(ConnectError, match=r"is older than the table: bring back"):
        streams(spark, program, tmp_path, 100)
    assert sorted(row["n"] for row in iceberg_tables.rows_of(tmp_path)) == list(range(40))


def older(checkpoint: Path) -> None:
    """Restore the checkpoint of the first micro-batch."""
    for place in ("offsets", "commits", "sources/0"):
        for path in (checkpoint / "spark" / place).iterdir():
            if path.name.lstrip(".").partition(".")[0] != "0":
                path.unlink()
    (portions,) = checkpoint.glob("portions-*")
    for path in portions.iterdir():
        if path.name != "0-0":
            os.rename(path, checkpoint.parent / f"gone-{path.name}")
