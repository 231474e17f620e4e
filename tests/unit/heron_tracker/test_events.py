"""Event streams: changes are merged, bounds hold, every end of a stream gives its place back."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, MutableMapping
from typing import Any

import pytest

from heron_tracker import events
from heron_tracker.cluster_watch import StoreChange
from heron_tracker.events import EventBroadcast, EventStream, TooManyListeners

SCOPE: dict[str, Any] = {"type": "http", "method": "GET"}


def change(topology: str, what: str = "changed") -> StoreChange:
    return StoreChange("local", topology, what)


class Client:
    """Hears a stream until it goes away."""

    def __init__(self, stream: EventStream) -> None:
        self.heard = b""
        self.complete = False
        self._gone = asyncio.Event()
        self._news = asyncio.Event()
        self.task = asyncio.ensure_future(stream(SCOPE, self._receive, self._send))

    async def _receive(self) -> MutableMapping[str, Any]:
        await self._gone.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: MutableMapping[str, Any]) -> None:
        self.heard += message.get("body", b"")
        self.complete = message["type"] == "http.response.body" and not message.get("more_body")
        self._news.set()

    async def hears(self, condition: Callable[[bytes], bool]) -> None:
        async with asyncio.timeout(30):
            while not condition(self.heard):
                await self._news.wait()
                self._news.clear()

    async def leave(self) -> None:
        self._gone.set()
        await self.task


async def test_a_slow_listener_hears_each_topology_once_and_only_what_it_wants() -> None:
    broadcast = EventBroadcast(lambda _: None)
    client = Client(broadcast.stream(lambda c: c.topology != "unwanted"))
    await client.hears(lambda heard: heard.startswith(b"event: hello\ndata: {}\nretry: 2000\n\n"))
    for told in (change("a", "added"), change("unwanted"), change("b"), change("a", "removed"), change("", "stale")):
        broadcast.tell(told)
    await client.hears(lambda heard: b"stale" in heard)
    assert client.heard.split(b"\n\n")[1:-1] == [
        b'event: topology\ndata: {"cluster": "local", "topology": "b", "change": "changed"}',
        b'event: topology\ndata: {"cluster": "local", "topology": "a", "change": "removed"}',
        b'event: cluster\ndata: {"cluster": "local", "topology": "", "change": "stale"}',
    ]
    await client.leave()


async def test_too_many_changes_become_one_event(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "MAX_WAITING", 3)
    broadcast = EventBroadcast(lambda _: None)
    client = Client(broadcast.stream(lambda _: True))
    await client.hears(lambda heard: b"hello" in heard)
    for n in range(9):
        broadcast.tell(change(f"t{n}"))
    await client.hears(lambda heard: b"everything" in heard)
    broadcast.tell(change("later"))
    await client.hears(lambda heard: b"later" in heard)
    assert client.heard.count(b"event: ") == 3
    await client.leave()


async def test_listeners_are_bounded_and_a_place_is_given_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "MAX_LISTENERS", 2)
    counts: list[int] = []
    broadcast = EventBroadcast(counts.append)
    first = Client(broadcast.stream(lambda _: True))
    broadcast.stream(lambda _: True)
    with pytest.raises(TooManyListeners):
        broadcast.stream(lambda _: True)
    await first.leave()
    second = Client(broadcast.stream(lambda _: True))
    await asyncio.sleep(0)
    second.task.cancel()  # before the first event
    await asyncio.gather(second.task, return_exceptions=True)
    broadcast.stream(lambda _: True)
    assert counts == [1, 2, 1, 2, 1, 2]


async def test_one_address_does_not_take_every_place() -> None:
    broadcast = EventBroadcast(lambda _: None)
    held = [broadcast.stream(lambda _: True, "192.0.2.1") for _ in range(events.MAX_OF_ONE)]
    with pytest.raises(TooManyListeners, match="from this address"):
        broadcast.stream(lambda _: True, "192.0.2.1")
    other = Client(broadcast.stream(lambda _: True, "192.0.2.2"))
    await other.hears(lambda heard: b"hello" in heard)
    await other.leave()
    gone = Client(held[0])
    await gone.leave()
    broadcast.stream(lambda _: True, "192.0.2.1")  # its place is free again


async def test_a_silent_stream_is_kept_open_by_pings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "PING_SECONDS", 0.01)
    client = Client(EventBroadcast(lambda _: None).stream(lambda _: True))
    await client.hears(lambda heard: heard.count(b": still there\n\n") >= 2)
    await client.leave()


async def test_closing_completes_every_stream_and_takes_no_more() -> None:
    broadcast = EventBroadcast(lambda _: None)
    clients = [Client(broadcast.stream(lambda _: True)) for _ in range(3)]
    for client in clients:
        await client.hears(lambda heard: b"hello" in heard)
    broadcast.close()
    await asyncio.wait_for(asyncio.gather(*(client.task for client in clients)), 30)
    assert all(client.complete for client in clients)
    with pytest.raises(TooManyListeners):
        broadcast.stream(lambda _: True)
