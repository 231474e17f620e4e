"""Spark programs that write to real servers: each record once, whichever process is killed.

``test_spark_staged_laws.py`` tries every point of death.
"""

from __future__ import annotations

import io
import json
import os
import runpy
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql import SparkSession

from data_pipeline.core.planner import plan
from data_pipeline.core.render import ToServer
from data_pipeline.shell.job import compute_result
from data_pipeline.shell.output import OutputExists
from data_pipeline.shell.program import Loaded
from data_pipeline.shell.request import Request
from data_pipeline.shell.resolved_request import resolve_request
from data_pipeline.shell.staged import StageTask, Staging
from heronry.connect.settings import ConnectError
from heronry.streamlet import Builder, sequence, to_files, to_kafka, to_nats, to_table
from heronry.streamlet.program import Program
from heronry.streamlet.reference import run
from heronry.streamlet.results import read
from tests.support.server_process import running_server
from tests.support.servers.kafka import KafkaMock
from tests.support.servers.nats import NatsServer
from tests.support.servers.postgres import PostgresServer
from tests.support.servers.redis import RedisServer

HERE = Path(__file__).parent
ROWS = 2_000
PROGRAM = """
import sys
from heronry.streamlet import Builder, sequence, to_redis_stream, to_table

dsn, password, url, redis_password, rows = sys.argv[1:]
words = Builder("words")
numbers = words.source(sequence(int(rows), lambda n: {"id": n, "word": f"wörd {n % 7}"}), name="source")
numbers.sink(to_table(dsn, "records", ["id", "word"], password_file=password), name="records")
numbers.sink(to_redis_stream(url, "entries", ["id", "word"], password_file=redis_password), name="entries")
counts = numbers.key_by("word").count_by_key(name="counts")
counts.sink(to_table(dsn, "sums", ["key", "value"], key="key", password_file=password), name="sums")
"""


@pytest.fixture(scope="module")
def postgres() -> Iterator[PostgresServer]:
    with running_server(PostgresServer) as made:
        made.ask("CREATE TABLE records (id int, word text)")
        made.ask("CREATE TABLE sums (key text PRIMARY KEY, value bigint)")
        for name in ("plain", "strict"):
            made.ask(f"CREATE TABLE {name} (id int, word text NOT NULL)")
        yield made


@pytest.fixture(scope="module")
def redis() -> Iterator[RedisServer]:
    with running_server(RedisServer) as made:
        yield made


def spark_runs(spark: SparkSession, program: Program, folder: Path, **more: Any) -> tuple[str, str]:
    """Return the command's standard output and messages."""
    said = io.StringIO()
    request = Request(Path("p.py"), output_path=str(folder / "out"), **more)
    return compute_result(spark, resolve_request(request, Loaded(program, ())), said), said.getvalue()


def test_each_record_is_written_once_after_a_worker_and_the_driver_are_killed(
    spark: SparkSession, postgres: PostgresServer, redis: RedisServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, flag, out = tmp_path / "words.py", tmp_path / "flag", tmp_path / "out"
    file.write_text(PROGRAM)
    told = [postgres.dsn, str(postgres.password_file), redis.url, str(redis.password_file), str(ROWS)]
    command = [sys.executable, str(HERE / "dying_driver.py"), str(flag), str(file), f"--output-path={out}"]
    died = subprocess.run(
        [*command, "--master=local[2,4]", "--", *told], capture_output=True, text=True, check=False, timeout=600
    )
    assert died.returncode == -signal.SIGKILL, died.stderr
    assert flag.exists(), "no worker was killed"
    assert (out / "_heronry.json").exists()
    assert postgres.ask("SELECT count(*) FROM records") == [(0,)]
    assert redis.client.xlen("entries") == 0

    monkeypatch.setattr(sys, "argv", [str(file), *told])
    program = runpy.run_path(str(file))["words"].build()
    printed, _ = spark_runs(spark, program, tmp_path)
    assert "still owed its records in servers: entries, records, sums committed now" in printed
    expected = run(program)
    rows = postgres.ask("SELECT id, word FROM records ORDER BY id")
    assert rows == sorted((record["id"], record["word"]) for record in expected["records"])
    entries = [(int(entry["id"]), entry["word"]) for _, entry in redis.client.xrange("entries")]
    assert sorted(entries) == rows
    assert sorted(postgres.ask("SELECT key, value FROM sums")) == sorted(map(tuple, expected["sums"]))
    assert postgres.left() == [(0, 0)]
    assert not [key for key in redis.client.keys("heronry:*") if ":batch:" not in key], "unprepared ones end alone"
    with pytest.raises(OutputExists):
        spark_runs(spark, program, tmp_path)
    for text in (died.stdout, died.stderr, (out / "_heronry.json").read_text(), printed):
        assert postgres.password not in text
        assert redis.password not in text


def into_all(
    postgres: PostgresServer, brokers: KafkaMock, jetstream: NatsServer, folder: Path, bad: Any, table: str = "plain"
) -> Program:
    """Write numbers and words to each system; ``bad`` is the word of number 5."""

    def record(number: int) -> dict[str, Any]:  # nested, so that workers get the function by value
        return {"id": number, "word": bad if number == 5 else f"wörd {number}", "more": ...}

    builder, fields = Builder("into"), ["id", "word"]
    numbers = builder.source(sequence(50, record), name="source")
    numbers.sink(to_table(postgres.dsn, table, fields, password_file=postgres.password_file), name="table")
    numbers.sink(to_kafka(brokers.servers, "words", fields, key="word", spool=folder / "kafka"), name="topic")
    into_nats = to_nats(
        jetstream.url, "words.into", fields, spool=folder / "nats", password_file=jetstream.password_file
    )
    numbers.sink(into_nats, name="subject")
    numbers.map(lambda record: record["id"]).sink(to_files("/nowhere"), name="lines")
    return builder.build()


def test_all_systems_skip_a_rejected_record_and_a_dead_runs_data(
    spark: SparkSession, postgres: PostgresServer, brokers: KafkaMock, jetstream: NatsServer, tmp_path: Path
) -> None:
    """A record rejected by one system becomes a dead letter for all; data staged by the first pass is discarded."""
    program = into_all(postgres, brokers, jetstream, tmp_path, "zero \0 byte")
    dead = dead_run(program, tmp_path)
    assert postgres.left()[0][1] >= 1
    printed, said = spark_runs(spark, program, tmp_path)
    assert "running again to put such records aside" in said
    assert f"wrote lines to {tmp_path / 'out'}; table, 49 records, to postgres plain at " in printed
    assert "1 records that fail are put aside" in printed
    expected = sorted((n, f"wörd {n}") for n in range(50) if n != 5)
    assert sorted(postgres.ask("SELECT id, word FROM plain")) == expected
    found = [(json.loads(message.value()), message.key()) for message in brokers.messages("words")]
    assert sorted((value["id"], value["word"]) for value, _ in found) == expected
    assert all(key.decode() == value["word"] for value, key in found)
    bodies = [json.loads(body) for body in jetstream.bodies("words")]
    assert sorted((body["id"], body["word"]) for body in bodies) == expected
    assert sorted(read(tmp_path / "out" / "lines")) == [n for n, _ in expected]
    (letter,) = map(json.loads, (tmp_path / "out" / "_failed.jsonl").read_text().splitlines())
    assert "PostgreSQL has no text with a zero byte" in letter["error"]
    assert postgres.left() == [(0, 0)]
    assert not dead.exists()
    assert [path for place in ("kafka", "nats") for path in (tmp_path / place).iterdir()] == []


def dead_run(program: Program, folder: Path) -> Path:
    """Leave the folder of a run whose driver died after some of its tasks had staged."""
    found = plan(program)
    journal = Staging(found.program, found.outputs, bool).journal
    for output in found.outputs[:-1]:
        payloads = [ToServer(output.sink)({"id": -1, "word": "of nobody"})]  # type: ignore[arg-type]
        batch = SimpleNamespace(column=lambda _, made=payloads: SimpleNamespace(to_pylist=lambda: made))
        StageTask(output.step, output.sink, journal).staged(iter([batch]), 0, 1)  # type: ignore[arg-type]
    gone = subprocess.Popen(["true"])
    gone.wait()
    place = folder / f".out.{socket.gethostname()}.{gone.pid}.tmp"
    place.mkdir()
    (place / "_staged.json").write_text(json.dumps(journal.to_json()))
    return place


def test_sink_errors_name_the_step_and_write_nothing(
    spark: SparkSession, postgres: PostgresServer, brokers: KafkaMock, jetstream: NatsServer, tmp_path: Path
) -> None:
    program = into_all(postgres, brokers, jetstream, tmp_path, None, "strict")
    messages = len(jetstream.bodies("words"))
    with pytest.raises(ConnectError, match=r"step 'table': PostgresSink: field 'word' is None .* is NOT NULL"):
        spark_runs(spark, program, tmp_path)
    postgres.ask("DROP TABLE strict")
    with pytest.raises(ConnectError, match=r"step 'table': .*strict") as raised:
        spark_runs(spark, program, tmp_path)
    assert postgres.password not in str(raised.value)
    assert len(jetstream.bodies("words")) == messages
    assert postgres.left() == [(0, 0)]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["kafka", "nats"]
    assert not any(os.listdir(tmp_path / name) for name in ("kafka", "nats"))
