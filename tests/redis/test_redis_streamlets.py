"""Redis streams as the source of a program: engines agree, and missing streams are reported."""

from __future__ import annotations

import itertools
import json
import re
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from heronry.api.errors import TopologyError
from heronry.connect.polling import rows_of
from heronry.connect.settings import ConnectError
from heronry.streamlet import Builder, collect, redis_stream, to_redis_stream
from heronry.streamlet.reference import run
from heronry.streamlet.servers import ServerSource, pieces_of, ranges_of
from tests.support.servers.redis import RedisServer
from tests.support.streamlets.online_engine import importable
from tests.support.streamlets.server_programs import (
    differences,
    in_reference,
    into_servers,
    online,
    program,
    read_all,
    world,
    write_online,
)

_numbers = itertools.count(1)


@pytest.fixture
def streams(server: RedisServer) -> list[str]:
    """Create two streams of words and numbers."""
    names = [f"served{next(_numbers)}", f"served{next(_numbers)}"]
    for number in range(90):
        add(server, names[number % 3 == 0], number)
    return names


def add(server: RedisServer, stream: str, number: int) -> str:
    return str(server.client.xadd(stream, {"word": "abcdé"[number % 5], "n": number}))


def source(server: RedisServer, streams: list[str], **more: Any) -> ServerSource:
    given: dict[str, Any] = {"password_file": server.password_file, "grows": False, "rows": 7, **more}
    return redis_stream(server.url, streams, ["id", "stream", "word", "n"], **given)


def test_engines_agree_across_faults(server: RedisServer, streams: list[str], tmp_path: Path) -> None:
    read = source(server, streams)
    expected = in_reference(read)
    assert len(expected["records"]) == 90
    assert differences(expected, online(read, tmp_path, kills=2)) == {}


def test_bounded_source_ends_at_the_end_of_the_stream_at_its_start(
    server: RedisServer, streams: list[str], tmp_path: Path
) -> None:
    read = source(server, streams)
    expected = in_reference(read)
    builder = program(read, tmp_path)
    with importable(builder):
        made = world(builder, tmp_path)
        while not made.last.checkpoint:
            made.run_on(0.5)
        add(server, streams[0], 100)
        made.kill(made.plan.tasks_of("source")[0])
        made.until_final()
        made.stop()
    assert differences(expected, read_all(builder.build(), tmp_path)) == {}


def test_failing_record_becomes_a_dead_letter_with_its_position(
    server: RedisServer, streams: list[str], tmp_path: Path
) -> None:
    server.client.xadd(streams[0], {"word": "bad", "n": -1})
    read = source(server, streams)
    letters: list[dict[str, Any]] = []
    expected = in_reference(read, letters)
    assert [letter["where"] for letter in letters] == [f"{streams[0]} (redis), record 61"]
    assert differences(expected, online(read, tmp_path)) == {}
    (aside,) = (tmp_path / "failed").glob("*.jsonl")
    assert json.loads(aside.read_text())["where"] == letters[0]["where"]


def test_range_is_read_exactly(server: RedisServer, streams: list[str]) -> None:
    read = source(server, streams)
    ranges = ranges_of(read, "test")
    later = [add(server, stream, 100) for stream in streams]
    found = [record for _, _, records in pieces_of(read, ranges, "test") for record in records]
    assert sorted(int(record["n"]) for record in found) == list(range(90))
    assert not {record["id"] for record in found} & set(later)
    with closing(read.open("test")) as reader:
        behind = [reader.bounds(wanted.split, json.loads(json.dumps(wanted.end))) for wanted in ranges]
        rest = [row for wanted in behind if wanted for rows in rows_of(reader, wanted) for row in rows]
        assert [row[0] for row in rest] == later, "the next range begins where one ends"
        assert [reader.bounds(wanted.split, wanted.end) for wanted in behind if wanted] == [None, None]


def test_entries_removed_before_they_were_read_are_an_error(server: RedisServer, streams: list[str]) -> None:
    read = source(server, streams)
    one, two = ranges_of(read, "test")
    first, *_, last = [entry for entry, _ in server.client.xrange(streams[0])]
    server.client.xdel(streams[0], last)
    with pytest.raises(ConnectError, match=rf"1 entries of stream '{streams[0]}' were removed"):
        list(pieces_of(read, [one], "test"))
    whole = sum(len(records) for _, _, records in pieces_of(source(server, streams, removed="skip"), [one], "test"))
    assert whole == 59
    server.client.delete(streams[1])
    for _ in range(2):  # deleted and recreated
        with pytest.raises(ConnectError, match=rf"'{streams[1]}' was deleted or recreated after 0 of its entries"):
            list(pieces_of(source(server, streams, removed="skip"), [two], "test"))
        add(server, streams[1], 1)
    server.client.xdel(streams[0], first)  # before any range began: not a loss
    assert sum(len(records) for _, _, records in pieces_of(read, ranges_of(read, "test"), "test")) == 58 + 2


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"url": "redis://heron:secret@localhost"}, "'user.redis.url' holds a password"),
        ({"password_file": "secrets/redis"}, "password_file is 'secrets/redis'; write its whole path"),
        ({"fields": []}, "name those of a record"),
        ({"fields": ["id", "id"]}, "names one twice"),
        ({"streams": []}, "needs config 'user.redis.streams'"),
        ({"removd": "skip"}, "unknown setting user.redis.removd"),
    ],
)
def test_invalid_declaration_is_rejected_when_the_program_is_built(given: dict[str, Any], said: str) -> None:
    right: dict[str, Any] = {"url": "redis://localhost", "streams": "s", "fields": ["id"]}
    builder = Builder("p")
    with pytest.raises(TopologyError, match=re.escape(said)) as raised:
        builder.source(redis_stream(**{**right, **given})).sink(collect())._draft.to_program()
    assert "secret@" not in str(raised.value)


def test_error_about_a_lookup_in_a_server_hides_the_password() -> None:
    table = redis_stream("redis://heron:secret@localhost", "s", ["id"])
    builder = Builder("p")
    with pytest.raises(TopologyError, match="its table is in a server") as raised:
        builder.source([1]).lookup(table, on=str).sink(collect())._draft.to_program()
    assert "secret" not in f"{raised.value} {table!r}"


def test_growing_stream_is_read_continuously_online(server: RedisServer, streams: list[str], tmp_path: Path) -> None:
    read = source(server, streams, grows=True)
    builder = program(read, tmp_path)
    with importable(builder):
        made = world(builder, tmp_path)
        made.run_on(6)
        add(server, streams[1], 7777)
        made.run_on(8)
        assert not made.is_final()
        made.stop()
    assert differences({"records": in_reference(read)["records"]}, read_all(builder.build(), tmp_path)) == {}


def test_programs_add_entries_once_across_faults(server: RedisServer, tmp_path: Path) -> None:
    streams = [f"into{next(_numbers)}", f"into{next(_numbers)}"]
    fields = (["id", "word", "half"], ["key", "value"])
    sinks = [
        to_redis_stream(server.url, name, wanted, password_file=server.password_file)
        for name, wanted in zip(streams, fields, strict=True)
    ]
    builder = into_servers(*sinks)
    write_online(builder, tmp_path, kills=4)
    expected = run(builder.build())
    records, sums = ([entry for _, entry in server.client.xrange(name)] for name in streams)
    told = [{name: str(value) for name, value in each.items() if value is not None} for each in expected["records"]]
    assert sorted(records, key=lambda each: int(each["id"])) == sorted(told, key=lambda each: int(each["id"]))
    assert sorted((each["key"], int(each["value"])) for each in sums) == sorted(map(tuple, expected["sums"]))
    assert not [key for key in server.client.keys("heronry:into.*") if ":staged:" in key]
