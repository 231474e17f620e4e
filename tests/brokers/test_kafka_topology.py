"""A topology between Kafka topics whose tasks are killed while the brokers stop: each message is written once.

Messages of a key stay together and in order.
"""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path

from tests.support.heron_command import HeronCommand, unique
from tests.support.servers.kafka import KafkaMock
from tests.support.waiting import wait_until, wait_until_equal

TOPOLOGY = Path(__file__).with_name("kafka_topology.py")
MESSAGES, KEYS = 400, 10
COMPONENTS = ("messages", "written")
AWAY_SECS = 5.0


def test_each_message_is_written_once_after_kills(brokers: KafkaMock, heron: HeronCommand, tmp_path: Path) -> None:
    name, given = unique("Messages"), dict[str, list[int]]()
    for topic in ("from", "to"):
        brokers.make(topic)

    def add() -> None:
        for key in (f"k{n}" for n in range(KEYS)):
            numbers = range(len(given.get(key, ())), len(given.get(key, ())) + MESSAGES // KEYS)
            brokers.add("from", *(b"%d" % n for n in numbers), partition=int(key[1:]) % 4, key=key)
            given.setdefault(key, []).extend(numbers)

    def found() -> dict[str, list[int]]:
        read = dict[str, list[int]]()
        for message in brokers.messages("to"):
            line = json.loads(message.value())
            assert message.key() == line["key"].encode()
            read.setdefault(line["key"], []).append(int(line["value"]))
        return read

    def many(read: dict[str, list[int]]) -> int:
        return sum(map(len, read.values()))

    def tasks() -> set[int]:
        return {p["pid"] for p in heron.status(name)["processes"] if p.get("component") in COMPONENTS}

    add()
    heron.submit(name, TOPOLOGY, "Messages", "--", brokers.servers, "from", "to", str(tmp_path / "spool"))
    wait_until(lambda: many(found()) > 0, "a checkpoint is committed")
    for pid in sorted(tasks()):
        add()
        os.kill(pid, signal.SIGKILL)
        wait_until_equal(lambda: many(found()), many(given), "messages written")
        assert found() == given
    add()
    with brokers.stopped():
        time.sleep(AWAY_SECS)
    wait_until_equal(lambda: many(found()), many(given), "messages written after the brokers were away")
    assert found() == given
    heron.kill(name)
    left = [path for path in (tmp_path / "spool").iterdir() if path.stat().st_size or "claim" in path.name]
    assert left == [], "all was written"
