"""A topology between real streams whose tasks and server are killed: each entry is written once."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from tests.support.heron_command import HeronCommand, unique
from tests.support.servers.redis import RedisServer
from tests.support.waiting import wait_until, wait_until_equal

TOPOLOGY = Path(__file__).with_name("streams_topology.py")
ENTRIES = 3000


def add(server: RedisServer, stream: str, first: int) -> list[tuple[str, str]]:
    adding = server.client.pipeline(transaction=False)
    for number in range(first, first + ENTRIES):
        adding.xadd(stream, {"word": f"w{number}"})
    adding.execute()
    return [(stream, f"w{number}") for number in range(first, first + ENTRIES)]


def test_each_entry_is_written_once_after_kills(server: RedisServer, heron: HeronCommand) -> None:
    name = unique("Streams")
    given = add(server, "a", 0) + add(server, "b", 0)
    heron.submit(name, TOPOLOGY, "Streams", "--", server.url, str(server.password_file), "a,b", "out")

    def found() -> list[tuple[str, str]]:
        return sorted((fields["stream"], fields["word"]) for _, fields in server.client.xrange("out"))

    def tasks() -> set[int]:
        return {p["pid"] for p in heron.status(name)["processes"] if p.get("component") in ("entries", "written")}

    wait_until(lambda: len(found()) > 0, "a checkpoint is committed")
    for number, pid in enumerate(sorted(tasks())):
        given += add(server, "ab"[number % 2], ENTRIES * (number + 1))
        os.kill(pid, signal.SIGKILL)
        wait_until_equal(lambda: len(found()), len(given), "entries written")
        assert found() == sorted(given)
    server.kill()
    server.start()
    given += add(server, "a", 10 * ENTRIES)
    wait_until_equal(lambda: len(found()), len(given), "entries written after the server's death")
    assert found() == sorted(given)
    heron.kill(name)
    ours = server.client.keys(f"heronry:{name}.written:*")
    assert f"heronry:{name}.written:tokens" in ours
    assert [key for key in ours if ":staged:" in key] == []
