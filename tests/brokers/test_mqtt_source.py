"""MQTT source against a real broker: acknowledgements, redelivery, invalid settings."""

from __future__ import annotations

import contextlib
import itertools
import time
from collections.abc import Iterator
from typing import Any

import pytest

from heronry import Config
from heronry.connect.mqtt_source import MqttTopics
from heronry.connect.settings import BadConfig, ConnectError
from tests.support.connectors import TaskPlace, made
from tests.support.servers.mosquitto import Mosquitto

_numbers = itertools.count(1)
WAIT_SECS = 60.0


@pytest.fixture
def topic() -> str:
    """Return a topic for the test."""
    return f"topic{next(_numbers)}"


class Read(MqttTopics):
    """MQTT source with the interface that the engine gives a spout."""

    def __init__(self) -> None:
        self.found: list[Any] = []
        self.ids: list[Any] = []

    def emit_many(self, rows: Any, tup_ids: Any = (), **_: Any) -> None:  # type: ignore[override]
        self.found += [row[0] for row in rows]
        self.ids += tup_ids

    def emit(self, values: Any, tup_id: Any = None, **_: Any) -> None:  # type: ignore[override]
        self.emit_many([values], [tup_id])

    def until(self, number: int) -> list[Any]:
        """Read until this many messages have arrived."""
        deadline = time.monotonic() + WAIT_SECS
        while len(self.found) < number:
            assert time.monotonic() < deadline, f"{len(self.found)} of {number} messages came"
            self.next_tuple()
            time.sleep(0.01)
        return self.found

    def settle(self) -> None:
        """Wait until the broker has processed all acknowledgements: it answers a later request."""
        self._ready.clear()
        self._client.subscribe([(topic, 1) for topic in self._topics])
        assert self._ready.wait(WAIT_SECS)


@contextlib.contextmanager
def source(broker: Mosquitto, topic: str, mode: str = Config.ATLEAST_ONCE, *fields: str, **more: Any) -> Iterator[Read]:
    name = f"source-{topic.strip('/#')}"
    place = TaskPlace(component=name, tasks=(1,), **{name: fields or ("data",)})
    config = {Config.TOPOLOGY_RELIABILITY_MODE: mode, **broker.config(topics=[topic], repeats="accept", **more)}
    spout = made(Read(), config, place)
    try:
        yield spout
        spout.settle()
    finally:
        spout.close()


def comes(broker: Mosquitto, topic: str, mode: str, last: str) -> list[Any]:
    """Return what a new life of the source gets, up to a message that is published now."""
    with source(broker, topic, mode) as again:
        broker.publish(topic, last.encode())
        deadline = time.monotonic() + WAIT_SECS
        while last not in again.found:
            assert time.monotonic() < deadline
            again.next_tuple()
            time.sleep(0.01)
        return again.found


def test_acked_messages_are_not_redelivered_and_others_are(broker: Mosquitto, topic: str) -> None:
    mode = Config.ATLEAST_ONCE
    with source(broker, topic, mode) as first:
        broker.publish(topic, *(b"m%d" % n for n in range(10)))
        assert first.until(10) == [f"m{n}" for n in range(10)]
        for number in first.ids[:4]:
            first.ack(number)
        first.fail(first.ids[5])
        assert first.found[10:] == ["m5"], "what has failed is emitted again"
    broker.publish(topic, b"meanwhile")
    assert comes(broker, topic, mode, "last") == [*(f"m{n}" for n in range(4, 10)), "meanwhile", "last"]


def test_checkpoints_acknowledge_earlier_messages(broker: Mosquitto, topic: str) -> None:
    mode = Config.EFFECTIVELY_ONCE
    with source(broker, topic, mode) as first:
        broker.publish(topic, b"a", b"b")
        first.until(2)
        first.pre_save("1")
        broker.publish(topic, b"c")
        first.until(3)
        first.pre_save("2")
        broker.publish(topic, b"d")
        first.until(4)
        first.pre_save("3")
        first.post_save("2")
    assert comes(broker, topic, mode, "last") == ["d", "last"]


def test_at_most_once_acknowledges_immediately(broker: Mosquitto, topic: str) -> None:
    with source(broker, topic, Config.ATMOST_ONCE) as first:
        broker.publish(topic, b"a", b"b")
        first.until(2)
    assert comes(broker, topic, Config.ATMOST_ONCE, "last") == ["last"]


def test_broker_restart_does_not_duplicate_messages(broker: Mosquitto, topic: str) -> None:
    with source(broker, topic) as first:
        broker.publish(topic, b"a", b"b")
        first.until(2)
        broker.kill()
        broker.start()
        broker.publish(topic, b"c")
        assert first.until(3) == ["a", "b", "c"], "the first two are sent again, and are known"


def test_fields_of_messages(broker: Mosquitto, topic: str) -> None:
    broker.publish(f"{topic}/x", b"\xff", retain=True)
    with source(broker, f"{topic}/#", Config.ATLEAST_ONCE, "data", "topic", "retained") as first:
        rows: list[Any] = []
        first.emit_many = lambda found, *_, **__: rows.extend(found)  # type: ignore[method-assign,assignment]
        broker.publish(f"{topic}/é", b"text", qos=0)
        deadline = time.monotonic() + WAIT_SECS
        while len(rows) < 2:
            assert time.monotonic() < deadline
            first.next_tuple()
            time.sleep(0.01)
    assert rows == [[b"\xff", f"{topic}/x", True], ["text", f"{topic}/é", False]]


def test_invalid_settings_are_reported(broker: Mosquitto, topic: str) -> None:
    def said(**config: Any) -> str:
        return "; ".join(MqttTopics.config_problems({f"user.mqtt.{k}": v for k, v in config.items()}))

    assert "user.mqtt.url" in said(topics=["a"])
    assert "user.mqtt.topics" in said(url=broker.url)
    assert "password" in said(url="mqtt://u:secret@h", topics=["a"])
    assert "'http://h'" in said(url="http://h", topics=["a"])
    assert "65535" in said(url="mqtts://u@h", topics=["a"], rows=70_000)
    assert said(url="mqtts://u@h:1", topics=["a"]) == ""
    once = {Config.TOPOLOGY_RELIABILITY_MODE: Config.EFFECTIVELY_ONCE, **broker.config(topics=["a"])}
    assert "may count twice" in "; ".join(MqttTopics.config_problems(once))
    with pytest.raises(BadConfig, match="has no field 'word'"), source(broker, topic, Config.ATMOST_ONCE, "word"):
        pass
    with pytest.raises(BadConfig, match="has one task"):
        made(Read(), broker.config(topics=["a"]), TaskPlace(component="source", source=("data",)))
    with pytest.raises(ConnectError, match="cannot be read"), source(broker, topic, url="mqtt://127.0.0.1:1"):
        pass
    wrong = broker.folder / "wrong"
    wrong.write_text("no")
    config = {"password.file": str(wrong)}
    with pytest.raises(ConnectError, match="Not authorized") as refused, source(broker, topic, **config):
        pass
    assert broker.password not in str(refused.value)
