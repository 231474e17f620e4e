"""Kafka source and sink against brokers that speak its protocol: positions, losses, batches, invalid settings."""

from __future__ import annotations

import contextlib
import itertools
import json
import logging
import os
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from heronry.connect.kafka_sink import ID, KafkaSink
from heronry.connect.kafka_source import KafkaTopics
from heronry.connect.polling import Range, rows_of
from heronry.connect.settings import BadConfig, ConnectError
from tests.support.connectors import Recorded, TaskPlace, checkpoint, made, row
from tests.support.servers.kafka import KafkaMock

_numbers = itertools.count(1)
PARTITIONS = 4


@pytest.fixture
def topic(brokers: KafkaMock) -> str:
    """Return a topic for the test."""
    name = f"topic{next(_numbers)}"
    brokers.make(name)
    return name


class Read(Recorded, KafkaTopics):  # type: ignore[misc]
    """Kafka source with the interface that the engine gives a spout."""


@contextlib.contextmanager
def source_of(brokers: KafkaMock, topic: str, keyed: dict[str, Any], *fields: str, **more: Any) -> Iterator[Read]:
    place = TaskPlace(component="source", source=fields or ("value",))
    spout = made(Read(keyed), brokers.config(topics=[topic], **{"poll.secs": 1e-9, **more}), place)
    try:
        yield spout
    finally:
        spout.close()


def read(brokers: KafkaMock, topic: str, keyed: dict[str, Any], *fields: str, **more: Any) -> list[list[Any]]:
    """Return the rows from the restored position to the end."""
    ends = dict.fromkeys((f"{topic}/{n}" for n in range(PARTITIONS)), 0)
    for message in brokers.messages(topic):
        ends[f"{topic}/{message.partition()}"] = message.offset() + 1
    with source_of(brokers, topic, keyed, *fields, **more) as spout:
        for _ in range(2000):
            spout.next_tuple()
            if {split: keyed.get(split) for split in ends} == ends:
                return spout.found
    raise AssertionError(f"{keyed} and not {ends}")


def sink_to(brokers: KafkaMock, topic: str, spool: Path, task: int = 1, **more: Any) -> KafkaSink:
    place = TaskPlace(component=f"sink-{topic}", task=task, source=("n",))
    config = {"topic": topic, "spool": str(spool), "timeout.secs": 20, **more}
    return made(KafkaSink(), brokers.config(**config), place)


def written(brokers: KafkaMock, topic: str) -> list[int]:
    return sorted(json.loads(message.value())["n"] for message in brokers.messages(topic))


def test_source_continues_from_its_position(brokers: KafkaMock, topic: str) -> None:
    keyed: dict[str, Any] = {}
    assert read(brokers, topic, keyed) == [], "nothing yet"
    assert keyed == {f"{topic}/{n}": 0 for n in range(PARTITIONS)}
    brokers.add(topic, *(b"%d" % n for n in range(25)), partition=2, headers={"kind": "é"}, key="k")
    brokers.add(topic, b"\xff", partition=1)
    found = read(brokers, topic, keyed, "offset", "topic", "partition", "value", "key", "kind", "absent", rows=7)
    behind = [values for values in found if values[2] == 2]
    assert behind == [[n, topic, 2, str(n), "k", "é", None] for n in range(25)]
    assert [values for values in found if values[2] != 2] == [[0, topic, 1, b"\xff", None, None, None]]
    assert read(brokers, topic, keyed) == [], "each once"
    brokers.add(topic, b"more", partition=2)
    ((value, time_ms),) = read(brokers, topic, keyed, "value", "time_ms")
    assert value == "more"
    assert time_ms > 1_700_000_000_000
    keyed[f"{topic}/2"] = 23  # as after a restore
    assert read(brokers, topic, keyed) == [["23"], ["24"], ["more"]]


def test_range_beyond_the_end_of_a_recreated_topic_starts_at_its_first_message(brokers: KafkaMock, topic: str) -> None:
    brokers.add(topic, *(b"%d" % n for n in range(10)))
    split, fields = f"{topic}/0", ("value",)
    with closing(KafkaTopics.reader(brokers.config(topics=[topic]), fields, "r")) as reader:
        with pytest.raises(ConnectError, match="ends at offset 10, and 50 were read"):
            reader.bounds(split, 50)
        with pytest.raises(ConnectError, match="ends at offset 10, and 50 were read"):
            reader.read(split, 50, 10)
    config = brokers.config(topics=[topic], removed="skip")
    with closing(KafkaTopics.reader(config, fields, "r")) as reader:
        assert reader.bounds(split, 50) == Range(split, 0, 10)
        rows = [row for piece in rows_of(reader, Range(split, 50, 10)) for row in piece]
        assert rows == [[str(n)] for n in range(10)]
        assert reader.bounds(split, 10) is None
        assert reader.bounds(f"{topic}/1", 50) == Range(f"{topic}/1", 0, 0), "so that the next range begins at 0"


def test_source_from_newest_keeps_its_start_position(brokers: KafkaMock, topic: str) -> None:
    brokers.add(topic, b"old")
    keyed: dict[str, Any] = {}
    assert read(brokers, topic, keyed, **{"from": "newest"}) == []
    brokers.add(topic, b"new")
    assert read(brokers, topic, keyed, **{"from": "newest"}) == [["new"]]


@pytest.mark.parametrize("how", ["removed", "made anew"])
def test_messages_removed_before_they_were_read_are_named(
    brokers: KafkaMock, topic: str, how: str, caplog: pytest.LogCaptureFixture
) -> None:
    keyed: dict[str, Any] = {}
    brokers.add(topic, b"read")
    assert read(brokers, topic, keyed) == [["read"]]
    if how == "removed":
        brokers.add(topic, *(bytes(500_000) for _ in range(14)))  # more than the retention limit
        said = r"messages of .*/0, from offset 1 on, were removed before they were read"
    else:
        keyed[f"{topic}/0"] = 7
        said = r"/0 ends at offset 1, and 7 were read: the topic was recreated"
    for _ in range(2):
        with pytest.raises(ConnectError, match=said):
            read(brokers, topic, keyed)
    caplog.set_level(logging.WARNING)
    found = read(brokers, topic, keyed, removed="skip")
    assert len(found) == (1 if how == "made anew" else len(brokers.messages(topic)))
    assert "continuing without them" in caplog.text
    assert read(brokers, topic, keyed) == [], "and then nothing is missing"


def test_messages_appear_once_after_repeated_commits(brokers: KafkaMock, topic: str, tmp_path: Path) -> None:
    sink = sink_to(brokers, topic, tmp_path, key="n")
    assert sink.prepare(checkpoint(1)) is None
    for n in range(5):
        sink.process(row(n=n))
    token = sink.prepare(checkpoint(2))
    assert token is not None
    brokers.add(topic, b'{"n": 77}', partition=0)  # from another producer, in between
    sink.process(row(n=9))
    later = sink.prepare(checkpoint(3))
    assert later is not None
    sink.process(row(n=10))  # the process dies
    sink.close()
    hidden = tmp_path / f".Topology.sink-{topic}-{token}.jsonl"
    batch = hidden.read_bytes()
    with contextlib.closing(sink_to(brokers, topic, tmp_path, task=2, key="n")) as other:
        assert (written(brokers, topic), sorted(other.prepared())) == ([77], [token, later])
        other.commit(2, token)
        assert written(brokers, topic) == [0, 1, 2, 3, 4, 77]
        by_key = [m.key() for m in brokers.messages(topic) if m.headers()]
        assert sorted(by_key) == [b"0", b"1", b"2", b"3", b"4"]
        assert [p.name for p in tmp_path.iterdir() if "claim" in p.name] == []
        other.commit(2, token)
        assert written(brokers, topic) == [0, 1, 2, 3, 4, 77], "it is done"
        hidden.write_bytes(batch)  # as if it had died before the removal
        os.close(os.open(tmp_path / f".Topology.sink-{topic}-claim-{token}", os.O_CREAT))
        other.commit(2, token)
        assert written(brokers, topic) == [0, 1, 2, 3, 4, 77], "it has looked"
        other.abort(later)
        other.abort(later)
        other.abort(token)  # too late: it is committed
        assert other.prepared() == []


def test_next_task_completes_a_partly_written_batch(brokers: KafkaMock, topic: str, tmp_path: Path) -> None:
    """Real brokers write a batch atomically; these show that existing messages are recognised one by one."""
    sink = sink_to(brokers, topic, tmp_path)
    for n in range(5):
        sink.process(row(n=n))
    token = sink.prepare(checkpoint(1))
    for n in (1, 4):
        header = {ID: f"Topology.sink-{topic}-{token}-{n}"}
        brokers.add(topic, json.dumps({"n": n}).encode(), partition=n % PARTITIONS, headers=header)
    (tmp_path / f".Topology.sink-{topic}-claim-{token}").touch()
    sink.close()
    with contextlib.closing(sink_to(brokers, topic, tmp_path, task=2)) as other:
        other.commit(1, token)
        assert written(brokers, topic) == [0, 1, 2, 3, 4]


def test_task_stopped_before_its_commit_finds_no_batch(brokers: KafkaMock, topic: str, tmp_path: Path) -> None:
    sink = sink_to(brokers, topic, tmp_path)
    sink.process(row(n=1))
    token = sink.prepare(checkpoint(1))
    assert token is not None
    hidden = tmp_path / f".Topology.sink-{topic}-{token}.jsonl"
    with contextlib.closing(sink_to(brokers, topic, tmp_path, task=2)) as other:
        claims = sink._claims

        def late(asked: str) -> bool:
            other.commit(1, asked)  # meanwhile
            return claims(asked)

        sink._claims = late  # type: ignore[method-assign]
        with pytest.raises(FileNotFoundError):
            sink.post(hidden, f"Topology.sink-{topic}-{token}")
    sink.close()
    assert written(brokers, topic) == [1]


def test_unreachable_brokers_are_retried_and_named(brokers: KafkaMock, topic: str, tmp_path: Path) -> None:
    sink = sink_to(brokers, topic, tmp_path, **{"timeout.secs": 1.0, "attempts": 1})
    sink.process(row(n=1))
    token = sink.prepare(checkpoint(1))
    assert token is not None
    keyed: dict[str, Any] = {}
    with source_of(brokers, topic, keyed, **{"timeout.secs": 1.0}) as spout:
        spout.next_tuple()
        with brokers.stopped():
            with pytest.raises(ConnectError, match=r"cannot be reached .*safe in"):
                sink.commit(1, token)
            with pytest.raises(ConnectError, match="cannot be reached"):
                made(
                    Read({}),
                    brokers.config(topics=["x"], **{"timeout.secs": 0.2}),
                    TaskPlace("source", source=("value",)),
                )
    sink._attempts = 6
    sink.commit(1, token)
    sink.close()
    assert written(brokers, topic) == [1]


def test_batch_lost_before_its_commit_is_an_error(brokers: KafkaMock, topic: str, tmp_path: Path) -> None:
    sink = sink_to(brokers, topic, tmp_path)
    sink.process(row(n=1))
    token = sink.prepare(checkpoint(1))
    assert token is not None
    (tmp_path / f".Topology.sink-{topic}-{token}.jsonl").unlink()
    with pytest.raises(ConnectError, match="same"):
        sink.commit(1, token)
    sink.close()


def test_invalid_settings_are_reported(brokers: KafkaMock, topic: str, tmp_path: Path) -> None:
    def said(component: type, **config: Any) -> str:
        return "; ".join(component.config_problems({f"user.kafka.{k}": v for k, v in config.items()}))

    assert "user.kafka.servers" in said(KafkaTopics, topics=["a"])
    assert "user.kafka.topics" in said(KafkaTopics, servers="h:1")
    secret = said(KafkaTopics, servers="h:1", topics=["a"], client={"sasl.password": "hush"})
    assert "user.kafka.password.file" in secret
    assert "hush" not in secret
    for name in ("group.id", "plugin.library.paths"):
        assert "not for topologies to set" in said(KafkaTopics, servers="h:1", topics=["a"], client={name: "x"})
    assert "fail or skip" in said(KafkaTopics, servers="h:1", topics=["a"], removed="x")
    assert "oldest or newest" in said(KafkaTopics, servers="h:1", topics=["a"], **{"from": "x"})
    assert said(KafkaSink, servers="h:1", topic="a", spool="/s", client={"security.protocol": "SSL"}) == ""
    with pytest.raises(ConnectError, match="does not accept these settings"):
        sink_to(brokers, topic, tmp_path, client={"no.such.setting": "1"})
    with pytest.raises(BadConfig, match="KafkaTopics has no fields"):
        made(Read({}), brokers.config(topics=[topic]), TaskPlace(component="source"))
    with pytest.raises(ConnectError, match="cannot be reached"):
        sink_to(brokers, topic, tmp_path, servers="127.0.0.1:1", **{"timeout.secs": 0.5})
    with pytest.raises(ConnectError, match=r"has no such topic .*nowhere"):
        sink_to(brokers, "nowhere", tmp_path)
    with pytest.raises(ConnectError, match="has no such topic"):
        read(brokers, "nowhere either", {})
    sink = sink_to(brokers, topic, tmp_path, key="other")
    with pytest.raises(ConnectError, match="names field 'other', and the tuple has n"):
        sink.process(row(n=1))
    sink.close()
