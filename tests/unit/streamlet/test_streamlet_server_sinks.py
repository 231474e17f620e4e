"""Server sinks as values: validation, hidden secrets, and records that the server cannot store, on each engine."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from data_pipeline.core.describe import described
from data_pipeline.core.planner import plan
from heronry.api.errors import TopologyError
from heronry.connect.seats import Seat, SeatedSink
from heronry.connect.settings import ConnectError
from heronry.streamlet import Builder, KeyValue, collect, sequence, to_kafka, to_nats, to_redis_stream, to_table
from heronry.streamlet.errors import StepFailed
from heronry.streamlet.online.block import Block
from heronry.streamlet.online.locate import fingerprint
from heronry.streamlet.online.sinks import ServerWriter
from heronry.streamlet.program import Program
from heronry.streamlet.reference import run
from heronry.streamlet.server_sinks import SINKS, ServerSink

DSN = "host=db dbname=shop user=heron"


def program(sink: Any) -> Program:
    builder = Builder("into")
    builder.source(sequence(3, lambda n: {"id": n, "more": n}), name="numbers").sink(sink, name="rows")
    return builder.build()


@pytest.mark.parametrize(
    ("sink", "said"),
    [
        (lambda: to_table(DSN, "t", []), r"fields is \(\); name those of a record"),
        (lambda: to_table(DSN, "t", ["a", "a"]), "fields names one twice"),
        (lambda: to_table(DSN, "t", ["a"], key="b"), r"key names 'b', which is not one of the fields \(a\)"),
        (lambda: to_table(DSN, "t", ["a"], colour=1), "postgres: unknown setting user.postgres.colour; Postgres"),
        (lambda: to_table(DSN, "t", ["a"], password_file="secret"), "password_file is 'secret'; write its whole path"),
        (lambda: to_table(f"{DSN} password=hush", "t", ["a"]), "'user.postgres.dsn' holds a password"),
        (lambda: to_redis_stream("redis://u:hush@db", "s", ["a"]), "'user.redis.url' holds a password"),
        (lambda: to_redis_stream("redis://db", "s", ["a"], maxlen=-1), "'user.redis.maxlen' is -1"),
        (lambda: to_kafka("b:9092", "t", ["a"], spool="here"), "spool is 'here'; write its whole path"),
        (lambda: to_kafka("b:9092", "t", ["a"], spool="/s", key="k"), "key names 'k'"),
        (lambda: to_kafka("b:1", "t", ["a"], spool="/s", client={"sasl.password": "hush"}), "sasl.password"),
        (lambda: to_nats("nats://b", "words.*", ["a"], spool="/s"), "it is one subject, without"),
    ],
)
def test_invalid_server_sink_is_rejected_at_build(sink: Any, said: str) -> None:
    with pytest.raises(TopologyError, match=said) as raised:
        program(sink())
    assert "hush" not in str(raised.value)


def test_server_sink_is_a_value_that_hides_settings() -> None:
    sink = to_kafka("b:9092", "t", ["a"], spool="/s", client={"sasl.username": "heron"})
    assert sink == to_kafka("b:9092", "t", ["a"], spool="/s", client={"sasl.username": "heron"})
    assert hash(sink)
    assert repr(to_table(f"{DSN} password=hush", "t", ["a"])).count("hush") == 0
    assert [str(sink), str(to_table(DSN, "t", ["a"]))] == ["kafka t at b:9092", f"postgres t at {DSN}"]


def test_server_sink_declaration_imports_no_driver() -> None:
    code = (
        "import sys; from heronry.streamlet import to_table, to_redis_stream, to_kafka, to_nats\n"
        "to_table('host=h', 't', ['a']), to_redis_stream('redis://h', 's', ['a'])\n"
        "to_kafka('h:1', 't', ['a'], spool='/s'), to_nats('nats://h', 's', ['a'], spool='/s')\n"
        "print([name for name in ('psycopg', 'redis', 'confluent_kafka', 'nats') if name in sys.modules])"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


def test_plans_and_fingerprints_name_the_server_sink() -> None:
    made = program(to_table(DSN, "t", ["id"]))
    assert f"output rows: postgres t at {DSN}; tasks stage" in described(plan(made))
    assert made.by_name["rows"].description == f"sink: postgres t at {DSN}"
    marks = {fingerprint(program(sink)) for sink in (to_table(DSN, "t", ["id"]), to_table(DSN, "u", ["id"]), collect())}
    assert len(marks) == 3
    assert fingerprint(program(collect())) == "3f29942dbb7224fa", "as before there were such sinks"


def test_reference_returns_the_records() -> None:
    assert run(program(to_table(DSN, "t", ["id"])))["rows"] == [{"id": n, "more": n} for n in range(3)]


def test_records_are_encoded_by_their_fields() -> None:
    table, stream = to_table(DSN, "t", ["key", "value"]), to_redis_stream("redis://db", "s", ["key", "value"])
    assert table.encoded(KeyValue("a", 1)) == {"key": "a", "value": 1}
    assert table.encoded({"key": "a", "more": 2}) == {"key": "a", "value": None}
    assert stream.encoded({"key": "a", "more": 2}) == [b"key", b"a"]
    assert to_nats("nats://b", "s", ["value"], spool="/s").encoded(KeyValue("a", 1)) == b'{"value":1}\n'
    with pytest.raises(TypeError, match="a record for a server has named fields"):
        table.encoded(7)
    with pytest.raises(ConnectError, match=r"PostgresSink: field .key. is .a.x00b"):
        table.encoded(KeyValue("a\0b", 1))


class Away(SeatedSink):
    """Connector whose server rejects everything."""

    @classmethod
    def encoded(cls, fields: Any, values: Any) -> Any:
        if values == ["bad"]:
            raise ConnectError("no place for it")
        return values

    def open(self, config: Any, seat: Seat) -> None:
        assert seat.fields == ("a",)

    def take(self, encoded: Any) -> None:
        raise ConnectError("it is away")

    def prepared(self) -> list[str]:
        return []

    def commit(self, checkpoint: int, token: str) -> None:
        raise ConnectError(f"{token} of {checkpoint} is gone")


def test_invalid_record_fails_alone_and_unavailable_server_fails_all(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(SINKS, "away", f"{__name__}:Away")
    writer = ServerWriter("rows", ServerSink("away", ("a",), ()), Seat("p.rows", 1, "1"))
    with pytest.raises(StepFailed) as raised:
        writer.encode(Block([{"a": 1}, {"a": "bad"}]))
    assert (raised.value.step, raised.value.record) == ("rows", {"a": "bad"})
    with pytest.raises(ConnectError, match="it is away"):
        writer.take(writer.encode(Block([{"a": 1}])))
    writer.commit("1-7-3-ab")  # of another life: perhaps nothing was prepared
    with pytest.raises(ConnectError, match="1-7-3-ab of 7 is gone"):
        writer.commit("1-7-3-ab", certain=True)
