"""Scheduler endpoints of the API server for schedulers without own processes, and request ids on disk."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path

import grpc
import pytest

from heron_apiserver.request_log import RequestInProgress, RequestLog, RequestRecord
from heron_apiserver.scheduler_endpoints import SchedulerEndpoints
from heron_apiserver.topologies import PlacedTopologies
from heron_control.inspection.inspector import Asker
from heron_runtime.launch import Launch
from heron_runtime.net.identity import Identity, draw_key, parse_identity
from heron_runtime.net.rpc import SCHEDULER_SERVICE
from heron_runtime.state import paths, topologies
from heron_runtime.state.store import Delete
from heron_runtime.wire.container import RestartContainer, RestartReply, SchedulerStatus, SchedulerStatusRequest
from tests.support.stub_processes import process
from tests.unit.heron_apiserver.plain_scheduler import PlainScheduler, submit, world


class TellingScheduler(PlainScheduler):
    """Scheduler that reports its containers itself."""

    def status(self, launch: Launch) -> SchedulerStatus | None:
        """Return the status of container 1."""
        own = process("heron_scheduler", "heron_scheduler", -1)
        return SchedulerStatus(own, (process("heron_container", "heron_container-1", 1),))


@pytest.fixture
def service(tmp_path: Path) -> Iterator[PlacedTopologies]:
    made, scheduler, store = world(tmp_path / "home")
    made.submissions.scheduler = TellingScheduler(scheduler.folder)
    yield made
    store.close()


async def test_api_server_answers_as_the_scheduler(service: PlacedTopologies) -> None:
    await asyncio.to_thread(submit, service)
    presence = SchedulerEndpoints(service, "127.0.0.1")
    try:
        await presence.refresh()
        await presence.refresh()
        record = await asyncio.to_thread(topologies.read_topology, service.submissions.store, "words")
        assert record.scheduler is not None
        identity = service.find_identity("words-1")
        assert identity is not None
        stranger = parse_identity(draw_key(), "words-1")

        def ask(given: Identity, method: str, request: object) -> object:
            return Asker(given, 20.0).call(record.scheduler, SCHEDULER_SERVICE, method, request)

        status = await asyncio.to_thread(ask, identity, "Status", SchedulerStatusRequest())
        assert status == service.submissions.scheduler.status(service.launches["words-1"])
        assert await asyncio.to_thread(ask, identity, "Restart", RestartContainer(1)) == RestartReply((1,))
        with pytest.raises(grpc.RpcError, match="handshake"):
            await asyncio.to_thread(ask, stranger, "Status", SchedulerStatusRequest())
        await asyncio.to_thread(service.submissions.kill, "words", "ads", "prod")
        await presence.refresh()
        with pytest.raises(grpc.RpcError):
            await asyncio.to_thread(ask, identity, "Status", SchedulerStatusRequest())
    finally:
        await presence.close()


async def test_existing_node_is_not_read_again_and_a_deleted_one_is_recreated(
    service: PlacedTopologies, monkeypatch: pytest.MonkeyPatch
) -> None:
    await asyncio.to_thread(submit, service)
    store, asked = service.submissions.store, list[object]()
    read, presence = store.get_all, SchedulerEndpoints(service, "127.0.0.1")
    monkeypatch.setattr(store, "get_all", lambda paths: asked.append(paths) or read(paths))

    async def until(condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(60):
            while not condition():
                asked.clear()
                await presence.refresh()

    try:
        await presence.refresh()
        await until(lambda: not asked)
        store.commit([Delete(paths.scheduler("words"))])
        await until(lambda: read([paths.scheduler("words")]) != [None])
    finally:
        await presence.close()


async def test_name_can_be_submitted_repeatedly(service: PlacedTopologies) -> None:
    presence = SchedulerEndpoints(service, "127.0.0.1")
    try:
        for serial in (1, 2, 3):
            await asyncio.to_thread(submit, service, serial)
            await presence.refresh()
            record = await asyncio.to_thread(topologies.read_topology, service.submissions.store, "words")
            assert record.scheduler is not None, f"submission {serial} has no scheduler"
            assert record.scheduler.topology_id == f"words-{serial}"
            await asyncio.to_thread(service.submissions.kill, "words", "ads", "prod")
        await presence.refresh()
        assert service.submissions.store.children("/schedulers") == []
    finally:
        await presence.close()


def test_request_ids_survive_a_crash(tmp_path: Path) -> None:
    first, second = (RequestRecord(str(n), "mark", f"words{n}", f"words{n}-1", 1e12) for n in range(2))
    before = RequestLog(tmp_path)
    assert before.begin(first) is None
    assert before.begin(second) is None
    (tmp_path / "requests" / "torn.json").write_text('{"request_id": "3", "fing')
    after = RequestLog(tmp_path)
    with pytest.raises(RequestInProgress):
        after.begin(first)
    after.settle({"words0": "words0-1"}, {"words0-1": "the answer"})
    assert after.begin(first) == "the answer"
    assert after.begin(second) is None  # it had not succeeded
    assert RequestLog(tmp_path).begin(first) == "the answer"
