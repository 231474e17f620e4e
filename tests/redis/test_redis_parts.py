"""Source and sink of Redis streams against a real server: two phases, losses, values, invalid settings."""

from __future__ import annotations

import itertools
import logging
from typing import Any

import pytest

from heronry.connect import redis_sink
from heronry.connect.redis_sink import RedisStreamSink
from heronry.connect.redis_source import RedisStream
from heronry.connect.settings import BadConfig, ConnectError
from tests.support.connectors import Recorded, TaskPlace, checkpoint, made, row
from tests.support.servers.redis import RedisServer

_numbers = itertools.count(1)


@pytest.fixture
def stream() -> str:
    """Return a stream name for the test."""
    return f"stream{next(_numbers)}"


class Read(Recorded, RedisStream):  # type: ignore[misc]
    """Redis source with the interface that the engine gives a spout."""


def source(server: RedisServer, stream: str, keyed: dict[str, Any], *fields: str, **more: Any) -> Read:
    place = TaskPlace(component="source", source=fields or ("word",))
    return made(Read(keyed), server.config(streams=[stream], **{"poll.secs": 1e-9, **more}), place)


def read(server: RedisServer, stream: str, keyed: dict[str, Any], *fields: str, **more: Any) -> list[list[Any]]:
    """Return the rows from the restored position to the end."""
    spout = source(server, stream, keyed, *fields, **more)
    try:
        nothing = 0
        while nothing < 3:
            before = len(spout.found)
            spout.next_tuple()
            nothing = nothing + 1 if len(spout.found) == before else 0
        return spout.found
    finally:
        spout.close()


def sink_to(server: RedisServer, stream: str, task: int = 1, **more: Any) -> RedisStreamSink:
    place = TaskPlace(component=f"sink-{stream}", task=task, source=("word",))
    return made(RedisStreamSink(), server.config(stream=stream, **more), place)


def written(server: RedisServer, stream: str) -> list[dict[str, str]]:
    return [fields for _, fields in server.client.xrange(stream)]


def test_entries_appear_once_after_repeated_commits(
    server: RedisServer, stream: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(redis_sink, "ENTRIES_A_PART", 2)
    sink = sink_to(server, stream)
    assert sink.prepare(checkpoint(1)) is None
    for word in "abcde":
        sink.process(row(word=word))
    token = sink.prepare(checkpoint(2))
    assert token is not None
    sink.process(row(word="x"))
    later = sink.prepare(checkpoint(3))
    assert later is not None
    for _ in range(3):
        sink.process(row(word="y"))  # the process dies
    sink.close()
    other = sink_to(server, stream, task=2)
    assert (written(server, stream), sorted(other.prepared())) == ([], [token, later])
    for each in (other, sink_to(server, stream), other):
        each.commit(2, token)
    assert [fields["word"] for fields in written(server, stream)] == list("abcde")
    other.abort(later)
    other.abort(later)
    other.abort(token)  # too late: it is committed
    assert (len(written(server, stream)), other.prepared()) == (5, [])
    batches = [key for key in server.client.keys("heronry:*") if ":batch:" in key and f"sink-{stream}" in key]
    assert all(server.client.ttl(key) > 0 for key in batches), "what nobody prepared ends by itself"
    assert not [key for key in server.client.keys("heronry:*") if ":staged:" in key and f"sink-{stream}" in key]


def test_batch_lost_before_its_commit_is_an_error(server: RedisServer, stream: str) -> None:
    sink = sink_to(server, stream)
    sink.process(row(word="a"))
    token = sink.prepare(checkpoint(1))
    assert token is not None
    server.client.delete(f"heronry:Topology.sink-{stream}:tokens")
    with pytest.raises(ConnectError, match="appendonly"):
        sink.commit(1, token)


def test_old_tokens_are_removed_and_the_stream_is_trimmed(
    server: RedisServer, stream: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(redis_sink, "KEPT_CHECKPOINTS", 3)
    sink = sink_to(server, stream, maxlen=100)
    for number in range(1, 9):
        for word in range(200):
            sink.process(row(word=word))
        token = sink.prepare(checkpoint(number))
        assert token is not None
        sink.commit(number, token)
    assert server.client.hlen(f"heronry:Topology.sink-{stream}:tokens") <= 4
    assert 100 <= server.client.xlen(stream) < 400


def test_values_are_stored_and_unsupported_ones_rejected(server: RedisServer, stream: str) -> None:
    sink = sink_to(server, stream)
    sink.process(row(text="é", data=b"raw", number=3, real=0.5, truth=True, nothing=None, many=[1, "a"]))
    token = sink.prepare(checkpoint(1))
    assert token is not None
    sink.commit(1, token)
    assert written(server, stream) == [
        {"text": "é", "data": "raw", "number": "3", "real": "0.5", "truth": "true", "many": '[1, "a"]'}
    ]
    for value in (object(), float("nan"), "\ud800", {1, 2}):
        with pytest.raises(ConnectError, match="field 'word'"):
            sink.process(row(word=value))
    with pytest.raises(ConnectError, match="needs a field"):
        sink.process(row(word=None))


def test_source_continues_from_its_position(server: RedisServer, stream: str) -> None:
    client, keyed = server.client, {}
    assert read(server, stream, keyed) == [], "a stream that is not there yet has nothing"
    ids = [client.xadd(stream, {"word": f"w{n}", "n": str(n)}) for n in range(25)]
    assert read(server, stream, keyed, "id", "stream", "n", "absent", rows=7) == [
        [number, stream, str(n), None] for n, number in enumerate(ids)
    ]
    client.xtrim(stream, maxlen=0, approximate=False)  # all have been read
    client.xadd(stream, {"word": b"\xff"})
    assert read(server, stream, keyed) == [[b"\xff"]], "what is no text comes as bytes"
    assert read(server, stream, keyed) == []


@pytest.mark.parametrize("how", ["trimmed", "removed", "deleted", "made anew"])
def test_entries_removed_before_they_were_read_are_named(
    server: RedisServer, stream: str, how: str, caplog: pytest.LogCaptureFixture
) -> None:
    client, keyed = server.client, {}
    client.xadd(stream, {"word": "before"})
    client.xtrim(stream, maxlen=0, approximate=False)  # not a loss: removed before the source started
    client.xadd(stream, {"word": "read"})
    assert read(server, stream, keyed) == [["read"]]
    ids = [client.xadd(stream, {"word": f"w{n}"}) for n in range(4)]
    if how == "trimmed":
        client.xtrim(stream, maxlen=1, approximate=False)
    elif how == "removed":
        client.xdel(stream, ids[1])
    else:
        client.delete(stream)
        if how == "made anew":
            client.xadd(stream, {"word": "w3"})
    said = "was deleted or recreated" if how in ("deleted", "made anew") else "entries of stream"
    for _ in range(2):
        with pytest.raises(ConnectError, match=said):
            read(server, stream, keyed, rows=2)
    caplog.set_level(logging.WARNING)
    found = read(server, stream, keyed, rows=2, removed="skip")
    assert "continuing without them" in caplog.text
    assert found[-1:] == ([] if how == "deleted" else [["w3"]])
    assert read(server, stream, keyed) == [], "and then nothing is missing"


def test_invalid_settings_are_reported(server: RedisServer, stream: str) -> None:
    def said(component: type, **config: Any) -> str:
        return "; ".join(component.config_problems({f"user.redis.{k}": v for k, v in config.items()}))

    assert "user.redis.url" in said(RedisStream, streams=["a"])
    assert "user.redis.streams" in said(RedisStream, url=server.url)
    assert "password" in said(RedisStreamSink, url="redis://:secret@h", stream="a")
    assert "secret" not in said(RedisStreamSink, url="redis://:secret@h", stream="a")
    assert "'http://h'" in said(RedisStreamSink, url="http://h", stream="a")
    assert "fail or skip" in said(RedisStream, url=server.url, streams=["a"], removed="x")
    assert said(RedisStream, url="rediss://user@h:6380/2", streams=["a"]) == ""
    server.client.set(stream, "text")
    with pytest.raises(ConnectError, match="holds a string"):
        sink_to(server, stream)
    with pytest.raises(ConnectError, match="refuses"):
        read(server, stream, {})
    with pytest.raises(BadConfig, match="no fields"):
        made(Read({}), server.config(streams=[stream]), TaskPlace(component="source"))
    with pytest.raises(ConnectError, match="cannot be reached"):
        made(RedisStreamSink(), server.config(stream="x", url="redis://127.0.0.1:1"), TaskPlace())
    wrong = server.folder / "wrong"
    wrong.write_text("no")
    with pytest.raises(ConnectError) as refused:
        made(RedisStreamSink(), server.config(stream="x", **{"password.file": str(wrong)}), TaskPlace())
    assert server.password not in str(refused.value)
