"""A topology between real streams whose tasks and server are killed: each stream message is written once.

Each message of the MQTT topic is written at least once.
"""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

from tests.support.heron_command import HeronCommand, unique
from tests.support.servers.mosquitto import Mosquitto
from tests.support.servers.nats import NatsServer
from tests.support.waiting import wait_until, wait_until_equal

TOPOLOGY = Path(__file__).with_name("messages_topology.py")
MESSAGES = 500
COMPONENTS = ("messages", "readings", "written")


def test_each_message_is_written_once_after_kills(
    server: NatsServer, broker: Mosquitto, heron: HeronCommand, tmp_path: Path
) -> None:
    name, given, published = unique("Messages"), list[tuple[str, str]](), set[str]()
    for stream in ("left", "right", "out"):
        server.make(stream)

    def add(stream: str) -> None:
        bodies = [f"m{len(given) + n}" for n in range(MESSAGES)]
        server.add(stream, *(body.encode() for body in bodies))
        given.extend((stream, body) for body in bodies)

    def publish() -> None:
        bodies = [f"r{len(published) + n}" for n in range(MESSAGES)]
        broker.publish("plant/a", *(body.encode() for body in bodies))
        published.update(bodies)

    def lines() -> list[dict[str, str]]:
        return [json.loads(body) for body in server.bodies("out")]

    def found() -> list[tuple[str, str]]:
        return sorted((line["stream"], line["data"]) for line in lines() if "stream" in line)

    def read() -> set[str]:
        return {line["data"] for line in lines() if line.get("topic") == "plant/a"}

    def tasks() -> set[int]:
        return {p["pid"] for p in heron.status(name)["processes"] if p.get("component") in COMPONENTS}

    add("left"), add("right")
    heron.submit(
        name, TOPOLOGY, "Messages", "--", server.url, str(server.password_file), "left,right", "out.x",
        str(tmp_path / "spool"), broker.url, "plant/+",
    )  # fmt: skip
    wait_until(lambda: len(found()) > 0, "a checkpoint is committed, so everybody listens")
    for number, pid in enumerate(sorted(tasks())):
        add(("left", "right")[number % 2])
        publish()
        os.kill(pid, signal.SIGKILL)
        wait_until_equal(lambda: len(found()), len(given), "messages written")
        assert found() == sorted(given)
    wait_until_equal(read, published, "messages of the topic")
    server.kill()
    server.start()
    add("left")
    wait_until_equal(lambda: len(found()), len(given), "messages written after the server's death")
    assert found() == sorted(given)
    heron.kill(name)
    assert [path for path in (tmp_path / "spool").iterdir() if path.stat().st_size] == [], "all was published"
