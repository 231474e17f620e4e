"""HTTP sink on a real server that remembers idempotency keys."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from heronry.connect import seats
from heronry.connect.http import HttpSink
from heronry.connect.settings import BadConfig, ConnectError
from tests.support.connectors import checkpoint, made, row
from tests.support.servers.idempotent_http import KeepingServer


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[KeepingServer]:
    monkeypatch.setattr(seats, "FIRST_PAUSE_SECS", 0.001)
    made = KeepingServer()
    thread = threading.Thread(target=made.serve_forever, args=(0.01,))
    thread.start()
    yield made
    made.shutdown()
    thread.join()
    made.server_close()


def sink_to(url: str, folder: Path, **more: Any) -> HttpSink:
    config = {"user.http.url": url, "user.http.spool": str(folder), "user.http.attempts": 3}
    return made(HttpSink(), {**config, **more})


def test_batch_is_posted_with_its_key_until_accepted(server: KeepingServer, tmp_path: Path) -> None:
    (tmp_path / "token").write_text("hush\n")
    more = {"user.http.token.file": str(tmp_path / "token"), "user.http.headers": {"X-Source": "test"}}
    sink = sink_to(server.url, tmp_path / "spool", **more)
    sink.process(row(word="a", count=1))
    sink.process(row(word="b", count=2))
    token = sink.prepare(checkpoint(1))
    assert server.requests == []
    server.planned[:] = [503, 409]
    sink.commit(1, token)
    sink.commit(1, token)
    sink.abort(token)
    sink.commit(1, token)
    key = f"Topology.sink-{token}"
    assert server.bodies == {key: [{"word": "a", "count": 1}, {"word": "b", "count": 2}]}
    assert [r["Idempotency-Key"] for r in server.requests] == [key] * 3
    assert {(r["Authorization"], r["X-Source"]) for r in server.requests} == {("Bearer hush", "test")}
    assert sink.prepared() == []
    sink.close()


def test_retry_by_another_task_posts_the_same_bytes_and_key(server: KeepingServer, tmp_path: Path) -> None:
    first = sink_to(server.url, tmp_path)
    first.process(row(n=1))
    token = first.prepare(checkpoint(1))
    (prepared,) = tmp_path.glob(".*")
    body = prepared.read_bytes()
    first.commit(1, token)
    prepared.write_bytes(body)  # as if it had died between the answer and the rename
    second = sink_to(server.url, tmp_path)
    assert second.prepared() == [token]
    second.commit(1, token)
    assert (len(server.requests), list(server.bodies.values())) == (2, [[{"n": 1}]])
    for sink in (first, second):
        sink.close()


@pytest.mark.parametrize(
    ("status", "tries", "said"),
    [
        (404, 1, "has refused batch .*: said 404 Not Found, nothing exists at this address: as planned.nand so on"),
        (422, 1, "the key was used for another"),
        (301, 1, "redirects to /elsewhere: use that address"),
        (500, 3, "did not accept batch .* in 3 attempts; the last time it said 500 .*The batch is safe in"),
    ],
)
def test_rejection_is_named_and_the_batch_is_kept(
    server: KeepingServer, status: int, tries: int, said: str, tmp_path: Path
) -> None:
    sink = sink_to(server.url, tmp_path)
    sink.process(row(n=1))
    token = sink.prepare(checkpoint(1))
    server.planned[:] = [status] * tries
    with pytest.raises(ConnectError, match=said):
        sink.commit(1, token)
    assert (len(server.requests), sink.prepared()) == (tries, [token])
    sink.commit(1, token)
    assert list(server.bodies.values()) == [[{"n": 1}]]
    sink.close()


def test_unreachable_server_is_reported(server: KeepingServer, tmp_path: Path) -> None:
    sink = sink_to("http://127.0.0.1:9", tmp_path)
    sink.process(row(n=1))
    with pytest.raises(ConnectError, match=r"the last time it gave no answer .ConnectError"):
        sink.commit(1, sink.prepare(checkpoint(1)))
    sink.close()


def test_old_marks_are_removed_and_others_stay(server: KeepingServer, tmp_path: Path) -> None:
    names = ["Topology.sink-1-1-1-a", "Topology.sink-1-5-2-a", "Topology.sink-9-2000-1-a", "Topology.sink-b-1-1-1-a"]
    for name in names:
        (tmp_path / f"{name}.sent").touch()
    sink_to(server.url, tmp_path).close()
    assert sorted(path.stem for path in tmp_path.iterdir()) == names[1:]


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("ftp://host/", "'ftp://host/'; it is where batches are posted, as http:// or https://"),
        ("http://me:secret@host/", "holds a password"),
        ("http://secret@host/", "holds a user name"),
        ("http://[::1/", "as http:// or https://"),
        ("http://host:port/", "as http:// or https://"),
    ],
)
def test_invalid_address_is_rejected(url: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(BadConfig, match=said) as raised:
        sink_to(url, tmp_path)
    assert "secret" not in str(raised.value)
