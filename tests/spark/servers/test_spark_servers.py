"""Server sources on Spark: read like the reference, completely or not at all, without passwords in messages.

A job costs more than a second, so all systems share one.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from data_pipeline.core.planner import plan
from data_pipeline.shell.execute import Execution
from data_pipeline.shell.job import compute_result
from data_pipeline.shell.program import Loaded
from data_pipeline.shell.request import Request, Streaming
from data_pipeline.shell.resolved_request import ResolvedRequest, resolve_request
from data_pipeline.shell.scan import Tables
from heronry.connect.settings import ConnectError
from heronry.streamlet import Builder, files, kafka, nats, postgres_changes, redis_stream, sql_rows, to_files
from heronry.streamlet.reference import run
from heronry.streamlet.results import read
from heronry.streamlet.servers import ServerSource
from tests.support.server_process import running_server
from tests.support.servers.kafka import KafkaMock, kafka_mock
from tests.support.servers.nats import NatsServer
from tests.support.servers.postgres import PostgresServer
from tests.support.servers.redis import RedisServer
from tests.support.streamlets.comparison import difference
from tests.support.streamlets.server_programs import differences, in_reference, program
from tests.support.streamlets.spark_engine import run_all

FIELDS = ["word", "n"]


@pytest.fixture(scope="module")
def redis() -> Iterator[RedisServer]:
    """Yield a Redis server whose streams ``a`` and ``b`` hold words."""
    with running_server(RedisServer) as made:
        fill(made)
        yield made


def fill(server: RedisServer) -> None:
    server.client.flushall()
    for number in range(40):
        server.client.xadd("ab"[number % 4 == 0], {"word": "xyzé"[number % 4], "n": number})


@pytest.fixture(scope="module")
def postgres() -> Iterator[PostgresServer]:
    """Yield a server whose table ``words`` holds words, as does the log of slot ``words``."""
    with running_server(PostgresServer) as made:
        made.ask("CREATE TABLE words (id bigint PRIMARY KEY, word text, n bigint, price numeric, at timestamptz)")
        made.ask("CREATE PUBLICATION words FOR TABLE words")
        made.ask("SELECT pg_create_logical_replication_slot('words', 'pgoutput')")
        made.ask("INSERT INTO words SELECT i, 'w' || i / 30, i, i * 0.10, now() FROM generate_series(0, 79) i")
        yield made


@pytest.fixture(scope="module")
def brokers() -> Iterator[KafkaMock]:
    """Yield a Kafka mock whose topic ``words`` holds words."""
    with kafka_mock() as made:
        for number in range(20):
            headers = {"word": "xyzé"[number % 4], "n": str(number)}
            made.add("words", b"1", partition=number % 3, headers=headers)
        yield made


@pytest.fixture(scope="module")
def jetstream() -> Iterator[NatsServer]:
    """Yield a NATS server whose stream ``words`` holds words."""
    with running_server(NatsServer) as made:
        made.make("words")
        for number in range(20):
            made.add("words", b"1", headers={"word": "xyz"[number % 3], "n": str(number)})
        yield made


def of_redis(redis: RedisServer, **more: Any) -> ServerSource:
    given: dict[str, Any] = {"password_file": redis.password_file, "grows": False, "rows": 7, **more}
    return redis_stream(redis.url, ["a", "b"], ["id", "stream", *FIELDS], **given)


def of_postgres(postgres: PostgresServer) -> ServerSource:
    fields = ["id", "price", "at", *FIELDS]
    return sql_rows(
        postgres.dsn, "words", "id", fields, bounds=[10, 50], rows=7, password_file=postgres.password_file, grows=False
    )


def changes(postgres: PostgresServer, **more: Any) -> ServerSource:
    fields = ["op", "lsn", "time", "price", *FIELDS]
    return postgres_changes(
        postgres.dsn, "words", "words", fields, rows=7, password_file=postgres.password_file, **more
    )


def job(source: ServerSource, folder: Path) -> ResolvedRequest:
    """Return a batch request as the command creates it."""
    request = Request(Path("p.py"), output_path=str(folder / "out"))
    return resolve_request(request, Loaded(program(source, folder / "unused").build(), ()))


def test_spark_reads_the_same_records_as_the_reference(
    spark: SparkSession, redis: RedisServer, postgres: PostgresServer, brokers: KafkaMock, jetstream: NatsServer,
) -> None:  # fmt: skip
    sources = [
        of_redis(redis), of_postgres(postgres), changes(postgres), kafka(brokers.servers, "words", ["offset", *FIELDS]),
        nats(jetstream.url, "words", ["subject", *FIELDS], password_file=jetstream.password_file),
    ]  # fmt: skip
    found = run_all(spark, [program(source, None).build() for source in sources])
    for source, seen, count in zip(sources, found, (40, 80, 80, 20, 20), strict=True):
        expected = in_reference(source)
        assert len(expected["records"]) == count
        assert differences(expected, seen) == {}, source


def test_job_reads_records_up_to_its_start_and_skips_failing_ones(
    spark: SparkSession, redis: RedisServer, tmp_path: Path
) -> None:
    redis.client.xadd("a", {"word": "bad", "n": -1})
    found = job(of_redis(redis), tmp_path)
    for number in range(40, 60):
        redis.client.xadd("a", {"word": "late", "n": number})
    said = io.StringIO()
    compute_result(spark, found, said)
    assert "running again to put such records aside" in said.getvalue()
    records = read(tmp_path / "out" / "records")
    assert sorted(int(record["n"]) for record in records) == list(range(40))
    (letter,) = map(json.loads, (tmp_path / "out" / "_failed.jsonl").read_text().splitlines())
    assert (letter["step"], letter["where"]) == ("refuse", "a (redis), record 31")
    fill(redis)


def test_incomplete_source_gives_no_result_and_plans_hide_passwords(
    spark: SparkSession, redis: RedisServer, tmp_path: Path
) -> None:
    found = job(of_redis(redis), tmp_path)
    made = plan(found.loaded.program, found.choice)
    execution = Execution(spark, made, tables=Tables(spark, ranges=found.ranges))
    shown: Any = execution.output("records")._jdf
    said = shown.queryExecution().toString()
    assert "MapInArrow" in said
    assert not any(word in said for word in (redis.password, redis.url))
    redis.client.xtrim("a", 3, approximate=False)
    with pytest.raises(ConnectError, match="step 'source': 27 entries of stream 'a' were removed before") as raised:
        compute_result(spark, found, io.StringIO())
    assert redis.password not in str(raised.value)
    assert not (tmp_path / "out").exists()
    fill(redis)


def test_missing_stream_or_server_is_reported_before_spark_starts(redis: RedisServer, tmp_path: Path) -> None:
    with pytest.raises(ConnectError, match="has no stream 'absent'"):
        job(redis_stream(redis.url, "absent", ["id"], password_file=redis.password_file), tmp_path)
    nobody = redis_stream("redis://127.0.0.1:1", "a", ["id"], password_file=redis.password_file)
    with pytest.raises(ConnectError, match=r"Redis at 127.0.0.1:1 cannot be reached"):
        job(nobody, tmp_path)


def test_micro_batches_of_ranges_equal_a_batch(spark: SparkSession, redis: RedisServer, tmp_path: Path) -> None:
    """A server and a folder; the second run dies between its portion and its result, and the third continues."""
    (tmp_path / "in").mkdir()
    builder = Builder("streamed")
    words = builder.source(of_redis(redis), name="redis")
    lines = builder.source(files(tmp_path / "in", "json"), name="lines")
    by_word = words.union(lines).key_by("word")
    by_word.sum_by_key(value=lambda record: int(record["n"]), updates=False).sink(to_files("/nowhere"), name="sums")
    made = builder.build()

    def run_on() -> str:
        streaming = Streaming(str(tmp_path / "checkpoint"), None, 100)
        request = Request(Path("p.py"), output_path=str(tmp_path / "out"), streaming=streaming)
        out = io.StringIO()
        compute_result(spark, resolve_request(request, Loaded(made, ())), out)
        assert difference(run(made)["sums"], read(tmp_path / "out" / "sums")) == ""
        return out.getvalue()

    assert "micro-batch 0: what is new in 'redis'" in run_on()
    redis.client.xadd("a", {"word": "later", "n": 7})
    (tmp_path / "in" / "a.json").write_text('{"word": "x", "n": 1}\n')
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("data_pipeline.shell.stream.Stream._publish", None)
        with pytest.raises(TypeError):
            run_on()
    assert "micro-batch" not in run_on(), "what was read before is not read again"
    redis.client.xadd("a", {"word": "lost", "n": 7})
    redis.client.xtrim("a", 0, approximate=False)
    with pytest.raises(ConnectError, match="step 'redis': 1 entries of stream 'a' were removed before they were read"):
        run_on()
    fill(redis)


def test_micro_batches_of_changes_confirm_earlier_changes(
    spark: SparkSession, postgres: PostgresServer, tmp_path: Path
) -> None:
    builder = Builder("changed")
    by_word = builder.source(changes(postgres), name="changes").key_by("word")
    by_word.count_by_key(updates=False).sink(to_files("/nowhere"), name="counts")
    made = builder.build()

    def run_on() -> dict[str, int]:
        streaming = Streaming(str(tmp_path / "checkpoint"), None, 100)
        request = Request(Path("p.py"), output_path=str(tmp_path / "out"), streaming=streaming)
        compute_result(spark, resolve_request(request, Loaded(made, ())), io.StringIO())
        return dict(map(tuple, read(tmp_path / "out" / "counts")))

    def confirmed() -> str:
        return str(postgres.ask("SELECT confirmed_flush_lsn FROM pg_replication_slots")[0][0])

    begun = confirmed()
    assert run_on() == {"w0": 30, "w1": 30, "w2": 20}
    assert confirmed() == begun, "what a run has read is confirmed by the next, when its checkpoint says so"
    postgres.ask("UPDATE words SET word = 'later' WHERE id < 5")
    assert run_on() == {"w0": 30, "w1": 30, "w2": 20, "later": 5}
    assert confirmed() != begun
    postgres.ask("SELECT pg_drop_replication_slot('words')")
    postgres.ask("UPDATE words SET word = 'lost' WHERE id < 5")
    with pytest.raises(ConnectError, match=r"missing slot 'words'.*changes since then are missing"):
        run_on()
