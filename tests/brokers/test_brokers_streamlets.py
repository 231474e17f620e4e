"""Kafka and JetStream as sources of programs: engines agree, and ranges are read completely and not exceeded."""

from __future__ import annotations

import itertools
import json
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from heronry.connect.polling import rows_of
from heronry.connect.settings import ConnectError
from heronry.streamlet import kafka, nats, to_kafka, to_nats
from heronry.streamlet.reference import run
from heronry.streamlet.servers import ServerSource, pieces_of, ranges_of
from tests.support.servers.kafka import KafkaMock
from tests.support.servers.nats import NatsServer
from tests.support.streamlets.server_programs import differences, in_reference, into_servers, online, write_online

_numbers = itertools.count(1)


def headers(number: int) -> dict[str, str]:
    return {"word": "xyzé"[number % 4] if number % 2 else "x", "n": str(number)}


@pytest.fixture
def topic(brokers: KafkaMock) -> str:
    """Return a topic of sixty messages in three of four partitions."""
    name = f"served{next(_numbers)}"
    for number in range(60):
        brokers.add(name, b"1", partition=number % 3, headers=headers(number))
    return name


def of_kafka(brokers: KafkaMock, topic: str, **more: Any) -> ServerSource:
    return kafka(brokers.servers, topic, ["offset", "word", "n"], **{"grows": False, "rows": 7, **more})


@pytest.fixture
def stream(server: NatsServer) -> str:
    """Return a stream of thirty messages."""
    name = f"served{next(_numbers)}"
    server.make(name)
    for number in range(30):
        server.add(name, b"1", headers={"word": "xyz"[number % 3], "n": str(number)})
    return name


def of_nats(server: NatsServer, stream: str, **more: Any) -> ServerSource:
    given: dict[str, Any] = {"password_file": server.password_file, "grows": False, "rows": 7, **more}
    return nats(server.url, stream, ["sequence", "word", "n"], **given)


def numbers(source: ServerSource, ranges: Any) -> list[int]:
    return sorted(int(record["n"]) for _, _, records in pieces_of(source, ranges, "test") for record in records)


def behind(source: ServerSource, ranges: Any) -> int:
    """Return the number of rows after the ranges."""
    with closing(source.open("test")) as reader:
        found = [reader.bounds(wanted.split, json.loads(json.dumps(wanted.end))) for wanted in ranges]
        return sum(len(rows) for wanted in found if wanted for rows in rows_of(reader, wanted))


def test_engines_agree_on_kafka(brokers: KafkaMock, topic: str, tmp_path: Path) -> None:
    source = of_kafka(brokers, topic)
    expected = in_reference(source)
    assert len(expected["records"]) == 60
    assert differences(expected, online(source, tmp_path, kills=1)) == {}


def test_engines_agree_on_nats(server: NatsServer, stream: str, tmp_path: Path) -> None:
    source = of_nats(server, stream)
    expected = in_reference(source)
    assert len(expected["records"]) == 30
    assert differences(expected, online(source, tmp_path, kills=1)) == {}


def test_kafka_range_is_read_exactly(brokers: KafkaMock, topic: str) -> None:
    source = of_kafka(brokers, topic)
    ranges = ranges_of(source, "test")
    assert len(ranges) == 3
    brokers.add(topic, b"later", partition=1, headers=headers(100))
    assert numbers(source, ranges) == list(range(60))
    assert behind(source, ranges) == 1
    with pytest.raises(ConnectError, match="the topic was recreated"):
        list(pieces_of(source, [ranges[0]._replace(begin=50, end=60)], "test"))


def test_nats_range_is_read_exactly(server: NatsServer, stream: str) -> None:
    source = of_nats(server, stream)
    (wanted,) = ranges_of(source, "test")
    server.add(stream, b"later", headers={"word": "x", "n": "100"})
    assert numbers(source, [wanted]) == list(range(30))
    assert behind(source, [wanted]) == 1
    for number in (30, 31):
        server.ask(lambda js, number=number: js.delete_msg(stream, number))
    with pytest.raises(ConnectError, match=rf"1 messages of stream '{stream}', after 29, were removed before"):
        numbers(source, [wanted])
    assert numbers(of_nats(server, stream, removed="skip"), [wanted]) == list(range(29))
    server.ask(lambda js: js.delete_stream(stream))
    server.make(stream)
    server.add(stream, b"1", headers={"word": "x", "n": "1"})
    with pytest.raises(ConnectError, match=rf"stream '{stream}' was recreated"):
        numbers(of_nats(server, stream, removed="skip"), [wanted])


def test_missing_topic_or_stream_is_an_error(server: NatsServer) -> None:
    with pytest.raises(ConnectError, match="looking at stream 'absent'"):
        ranges_of(of_nats(server, "absent"), "test")
    with pytest.raises(ConnectError, match=r"Kafka at 127.0.0.1:1 cannot be reached"):
        ranges_of(kafka("127.0.0.1:1", "t", timeout_secs=1), "test")
    (said,) = kafka("127.0.0.1:1", "t", **{"from": "newest"}).problems()
    assert "'from' is for spouts" in said


def test_programs_send_messages_once_across_faults(brokers: KafkaMock, server: NatsServer, tmp_path: Path) -> None:
    topic, stream = f"into{next(_numbers)}", f"into{next(_numbers)}"
    brokers.make(topic)
    server.make(stream)
    records = to_kafka(brokers.servers, topic, ["id", "word", "half"], key="word", spool=tmp_path / "kafka")
    spool = tmp_path / "nats"
    sums = to_nats(server.url, f"{stream}.sums", ["key", "value"], spool=spool, password_file=server.password_file)
    builder = into_servers(records, sums, numbers=60)
    write_online(builder, tmp_path / "own", kills=2)
    expected = run(builder.build())
    found = [json.loads(message.value()) for message in brokers.messages(topic)]
    by_id = {"key": lambda record: record["id"]}
    assert sorted(found, **by_id) == sorted(expected["records"], **by_id)
    bodies = [json.loads(body) for body in server.bodies(stream)]
    assert sorted((body["key"], body["value"]) for body in bodies) == sorted(map(tuple, expected["sums"]))
