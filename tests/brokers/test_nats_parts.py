"""JetStream source and sink against a real server: two phases, losses, values, invalid settings."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import logging
import os
from pathlib import Path
from typing import Any

import pytest

from heronry.connect import nats_sink
from heronry.connect.nats_sink import NatsSink
from heronry.connect.nats_source import NatsStream
from heronry.connect.settings import BadConfig, ConnectError
from tests.support.connectors import Recorded, TaskPlace, checkpoint, made, row
from tests.support.servers.nats import NatsServer

_numbers = itertools.count(1)
PROBE = 77


@pytest.fixture
def stream(server: NatsServer) -> str:
    """Return a stream for the test."""
    name = f"stream{next(_numbers)}"
    server.make(name)
    return name


class Read(Recorded, NatsStream):  # type: ignore[misc]
    """JetStream source with the interface that the engine gives a spout."""


def read(server: NatsServer, stream: str, keyed: dict[str, Any], *fields: str, **more: Any) -> list[list[Any]]:
    """Return the rows from the restored position to the end."""
    place = TaskPlace(component="source", source=fields or ("data",))
    spout = made(Read(keyed), server.config(streams=[stream], **{"poll.secs": 1e-9, **more}), place)
    try:
        nothing = 0
        while nothing < 2:
            before = (len(spout.found), dict(keyed))
            spout.next_tuple()
            nothing = nothing + 1 if (len(spout.found), keyed) == before else 0
        return spout.found
    finally:
        spout.close()


def sink_to(server: NatsServer, stream: str, spool: Path, task: int = 1, **more: Any) -> NatsSink:
    place = TaskPlace(component=f"sink-{stream}", task=task, source=("n",))
    return made(NatsSink(), server.config(subject=f"{stream}.x", spool=str(spool), **more), place)


def written(server: NatsServer, stream: str) -> list[int]:
    return [json.loads(body)["n"] for body in server.bodies(stream)]


@pytest.mark.parametrize("late", [False, True], ids=["within the window", "long after"])
def test_messages_appear_once_after_repeated_commits(
    server: NatsServer, tmp_path: Path, late: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``late``: the server has forgotten the ids of the first commit, which was interrupted."""
    monkeypatch.setattr(nats_sink, "TOGETHER", 2)
    monkeypatch.setattr(nats_sink, "LEAST_WINDOW_SECS", 0.1)
    stream = f"window{next(_numbers)}"
    server.make(stream, duplicate_window=0.2 if late else 120)
    sink = sink_to(server, stream, tmp_path)
    assert sink.prepare(checkpoint(1)) is None
    for n in range(5):
        sink.process(row(n=n))
    token = sink.prepare(checkpoint(2))
    assert token is not None
    sink.process(row(n=9))
    later = sink.prepare(checkpoint(3))
    assert later is not None
    sink.process(row(n=10))  # the process dies
    sink.close()
    with contextlib.closing(sink_to(server, stream, tmp_path, task=2)) as other:
        assert (written(server, stream), sorted(other.prepared())) == ([], [token, later])
        hidden = tmp_path / f".Topology.sink-{stream}-{token}.jsonl"
        batch = hidden.read_bytes()
        other.commit(2, token)
        assert written(server, stream) == [0, 1, 2, 3, 4]
        if late:
            server.ask(lambda js: forgotten(js, stream))
            server.ask(lambda js: js.delete_msg(stream, 2))
        hidden.write_bytes(batch)  # as if it had died before it recorded the commit
        if late:
            os.utime(hidden, (0, 0))
        other.commit(2, token)
        other.commit(2, token)
        assert sorted(n for n in written(server, stream) if n != PROBE) == [0, 1, 2, 3, 4]
        other.abort(later)
        other.abort(later)
        other.abort(token)  # too late: it is committed
        assert other.prepared() == []


async def forgotten(js: Any, stream: str) -> None:
    """Return True if the server accepts an id again, so that it has forgotten earlier ones."""
    for tried in range(600):
        body = json.dumps({"n": PROBE}).encode()
        if not (await js.publish(f"{stream}.x", body, headers={"Nats-Msg-Id": "probe"})).duplicate and tried:
            return
        await asyncio.sleep(0.05)
    raise TimeoutError("it remembers numbers for ever")


def test_batch_lost_before_its_commit_is_an_error(server: NatsServer, stream: str, tmp_path: Path) -> None:
    sink = sink_to(server, stream, tmp_path)
    sink.process(row(n=1))
    token = sink.prepare(checkpoint(1))
    assert token is not None
    (tmp_path / f".Topology.sink-{stream}-{token}.jsonl").unlink()
    with pytest.raises(ConnectError, match="same"):
        sink.commit(1, token)
    sink.close()


def test_source_continues_from_its_position(server: NatsServer, stream: str) -> None:
    keyed: dict[str, Any] = {}
    assert read(server, stream, keyed) == [], "nothing yet"
    server.add(stream, *(b"%d" % n for n in range(25)), headers={"kind": "é"})
    found = read(server, stream, keyed, "sequence", "subject", "stream", "data", "kind", "absent", rows=7)
    assert found == [[n + 1, f"{stream}.x", stream, str(n), "é", None] for n in range(25)]
    server.ask(lambda js: js.purge_stream(stream))  # all have been read
    server.add(stream, b"\xff")
    ((data, time_ms),) = read(server, stream, keyed, "data", "time_ms")
    assert data == b"\xff", "what is no text comes as bytes"
    assert time_ms > 1_700_000_000_000
    assert read(server, stream, keyed) == []


@pytest.mark.parametrize("how", ["purged", "removed", "made anew"])
def test_messages_removed_before_they_were_read_are_named(
    server: NatsServer, stream: str, how: str, caplog: pytest.LogCaptureFixture
) -> None:
    keyed: dict[str, Any] = {}
    server.add(stream, b"before")
    server.ask(lambda js: js.purge_stream(stream))  # not a loss: removed before the source started
    server.add(stream, b"read")
    assert read(server, stream, keyed) == [["read"]]
    server.add(stream, *(b"w%d" % n for n in range(4)))
    if how == "purged":
        server.ask(lambda js: js.purge_stream(stream, keep=1))
    elif how == "removed":
        server.ask(lambda js: js.delete_msg(stream, 4))
    else:
        server.ask(lambda js: js.delete_stream(stream))
        server.make(stream)
        server.add(stream, *(b"w%d" % n for n in range(4)))
    said = "was recreated" if how == "made anew" else "messages of stream"
    for _ in range(2):
        with pytest.raises(ConnectError, match=said):
            read(server, stream, keyed, rows=2)
    caplog.set_level(logging.WARNING)
    found = read(server, stream, keyed, rows=2, removed="skip")
    assert found[-1:] == [["w3"]]
    assert read(server, stream, keyed) == [], "and then nothing is missing"


def test_invalid_settings_are_reported(server: NatsServer, stream: str, tmp_path: Path) -> None:
    def said(component: type, **config: Any) -> str:
        return "; ".join(component.config_problems({f"user.nats.{k}": v for k, v in config.items()}))

    assert "user.nats.url" in said(NatsStream, streams=["a"])
    assert "user.nats.streams" in said(NatsStream, url=server.url)
    assert "password" in said(NatsStream, url="nats://u:secret@h", streams=["a"])
    assert "secret" not in said(NatsStream, url="nats://u:secret@h", streams=["a"])
    assert "'http://h'" in said(NatsStream, url="http://h", streams=["a"])
    assert "fail or skip" in said(NatsStream, url=server.url, streams=["a"], removed="x")
    assert "one subject" in said(NatsSink, url=server.url, subject="a.*", spool="/s")
    assert said(NatsStream, url="tls://user@h:4223", streams=["a"]) == ""
    with pytest.raises(ConnectError, match="stream not found"):
        read(server, "nowhere", {})
    with pytest.raises(ConnectError, match=r"no stream takes subject 'nowhere\.x'"):
        sink_to(server, "nowhere", tmp_path)
    server.make("forgetful", duplicate_window=1)
    with pytest.raises(ConnectError, match="remembers numbers of messages for 1 s only"):
        sink_to(server, "forgetful", tmp_path)
    with pytest.raises(BadConfig, match="NatsStream has no fields"):
        made(Read({}), server.config(streams=[stream]), TaskPlace(component="source"))
    with pytest.raises(ConnectError, match="cannot be reached"):
        sink_to(server, stream, tmp_path, url="nats://127.0.0.1:1")
    wrong = server.folder / "wrong"
    wrong.write_text("no")
    with pytest.raises(ConnectError, match="Authorization") as refused:
        sink_to(server, stream, tmp_path, **{"password.file": str(wrong)})
    assert server.password not in str(refused.value)
