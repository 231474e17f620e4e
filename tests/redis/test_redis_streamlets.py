"""Redis streams as the source of a program: the engines agree, and what is missing is said."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest
from redis_server import RedisServer
from server_programs import differences, in_reference, online

from heronry.connect.settings import ConnectError
from heronry.streamlet import redis_stream
from heronry.streamlet.servers import ServerSource, pieces_of, ranges_of

_numbers = itertools.count(1)


@pytest.fixture
def streams(server: RedisServer) -> list[str]:
    """Two, with words and numbers."""
    names = [f"served{next(_numbers)}", f"served{next(_numbers)}"]
    for number in range(90):
        add(server, names[number % 3 == 0], number)
    return names


def add(server: RedisServer, stream: str, number: int) -> str:
    return str(server.client.xadd(stream, {"word": "abcdé"[number % 5], "n": number}))


def source(server: RedisServer, streams: list[str], **more: Any) -> ServerSource:
    given: dict[str, Any] = {"password_file": server.password_file, "grows": False, "rows": 7, **more}
    return redis_stream(server.url, streams, ["id", "stream", "word", "n"], **given)


def test_engines_agree_whatever_dies(server: RedisServer, streams: list[str], tmp_path: Path) -> None:
    read = source(server, streams)
    expected = in_reference(read, tmp_path / "r")
    assert len(expected["records"]) == 90
    assert differences(expected, online(read, tmp_path / "o", kills=2)) == {}
