"""Event streams of the tracker: merged changes, bounds, and released places."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, MutableMapping
from typing import Any

import pytest

from heron_tracker import events
from heron_tracker.events import ChangeFilter, EventBroadcast, EventStream, StoreChange, TooManyListeners
from heron_tracker.self_metrics import TrackerMetrics

SCOPE: dict[str, Any] = {"type": "http", "method": "GET"}


def change(topology: str, what: str = "changed") -> StoreChange:
    return StoreChange("local", topology, what)


class Client:
    """Client that reads a stream until it disconnects."""

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


async def test_slow_listener_receives_each_topology_once_and_filtered() -> None:
    broadcast = EventBroadcast(TrackerMetrics())
    client = Client(broadcast.stream(ChangeFilter(topologies=frozenset("ab"))))
    await client.hears(lambda heard: heard.startswith(b"event: hello\ndata: {}\nretry: 2000\n\n"))
    for told in (change("a", "added"), change("unwanted"), change("b"), change("a", "removed"), change("", "stale")):
        broadcast.publish(told)
    await client.hears(lambda heard: b"stale" in heard)
    assert client.heard.split(b"\n\n")[1:-1] == [
        b'event: topology\ndata: {"cluster": "local", "topology": "b", "change": "changed"}',
        b'event: topology\ndata: {"cluster": "local", "topology": "a", "change": "removed"}',
        b'event: cluster\ndata: {"cluster": "local", "topology": "", "change": "stale"}',
    ]
    await client.leave()


async def test_too_many_changes_become_one_event(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "MAX_WAITING", 3)
    broadcast = EventBroadcast(TrackerMetrics())
    client = Client(broadcast.stream(ChangeFilter()))
    await client.hears(lambda heard: b"hello" in heard)
    for n in range(9):
        broadcast.publish(change(f"t{n}"))
    await client.hears(lambda heard: b"everything" in heard)
    broadcast.publish(change("later"))
    await client.hears(lambda heard: b"later" in heard)
    assert client.heard.count(b"event: ") == 3
    await client.leave()


async def test_listeners_are_bounded_and_places_are_released(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "MAX_LISTENERS", 2)
    counts: list[int] = []
    metrics = TrackerMetrics()
    monkeypatch.setattr(metrics, "listeners", counts.append)
    broadcast = EventBroadcast(metrics)
    first = Client(broadcast.stream(ChangeFilter()))
    broadcast.stream(ChangeFilter())
    with pytest.raises(TooManyListeners):
        broadcast.stream(ChangeFilter())
    await first.leave()
    second = Client(broadcast.stream(ChangeFilter()))
    await asyncio.sleep(0)
    second.task.cancel()  # before the first event
    await asyncio.gather(second.task, return_exceptions=True)
    broadcast.stream(ChangeFilter())
    assert counts == [1, 2, 1, 2, 1, 2]


async def test_one_address_cannot_take_every_place() -> None:
    broadcast = EventBroadcast(TrackerMetrics())
    held = [broadcast.stream(ChangeFilter(), "192.0.2.1") for _ in range(events.MAX_OF_ONE)]
    with pytest.raises(TooManyListeners, match="from this address"):
        broadcast.stream(ChangeFilter(), "192.0.2.1")
    other = Client(broadcast.stream(ChangeFilter(), "192.0.2.2"))
    await other.hears(lambda heard: b"hello" in heard)
    await other.leave()
    gone = Client(held[0])
    await gone.leave()
    broadcast.stream(ChangeFilter(), "192.0.2.1")  # its place is free again


async def test_silent_stream_is_kept_open_by_pings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "PING_SECONDS", 0.01)
    client = Client(EventBroadcast(TrackerMetrics()).stream(ChangeFilter()))
    await client.hears(lambda heard: heard.count(b": still there\n\n") >= 2)
    await client.leave()


async def test_close_completes_every_stream_and_accepts_no_more() -> None:
    broadcast = EventBroadcast(TrackerMetrics())
    clients = [Client(broadcast.stream(ChangeFilter())) for _ in range(3)]
    for client in clients:
        await client.hears(lambda heard: b"hello" in heard)
    broadcast.close()
    await asyncio.wait_for(asyncio.gather(*(client.task for client in clients)), 30)
    assert all(client.complete for client in clients)
    with pytest.raises(TooManyListeners):
        broadcast.stream(ChangeFilter())


@pytest.mark.parametrize(
    ("changes", "accepted"),
    [
        (ChangeFilter(), True),
        (ChangeFilter(clusters=frozenset({"other"})), False),
        (ChangeFilter(environs=frozenset({"default"})), True),
        (ChangeFilter(environs=frozenset({"test"})), False),
        (ChangeFilter(topologies=frozenset({"b"})), False),
    ],
)
def test_a_filter_accepts_changes_of_its_names(changes: ChangeFilter, accepted: bool) -> None:
    assert changes.accepts(StoreChange("local", "a", "changed", "default")) is accepted


@pytest.mark.parametrize("change", [StoreChange("local", "a", "removed"), StoreChange("local", "", "stale")])
def test_a_filter_accepts_changes_without_an_environment(change: StoreChange) -> None:
    assert ChangeFilter(frozenset({"local"}), frozenset({"test"}), frozenset({"a"})).accepts(change)
