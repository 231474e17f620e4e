"""Requests of the topology master to the state store, in one queue, so that they and their answers keep their order.

The core knows one execution state per topology. In the store the control plane writes user, time and place of it, and
the masters write the wanted state to a node of their own. The version that the core knows is that of this node.

The core relies on the order: a read requested before a write ended never arrives after the write's answer.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from heron_runtime.launch import Launch
from heron_runtime.model.records import MasterEpoch, MasterLocation, WantedState
from heron_runtime.state import paths
from heron_runtime.state.store import (
    Check,
    CheckOwner,
    Create,
    Delete,
    Node,
    Operation,
    SessionState,
    Set,
    StateStore,
    StoreError,
    TransactionFailed,
    check_identity,
    with_hint,
)
from heron_runtime.state.topologies import decoded, with_wanted
from heron_runtime.wire import message_codecs
from topology_master.core.events import (
    Campaign,
    CampaignEnded,
    CommitTransaction,
    Event,
    ReadStore,
    Resign,
    Session,
    SessionChanged,
    StoreRead,
    StoreRequest,
    StoreSnapshot,
    TransactionFinished,
    Write,
    WriteResult,
)

RETRY_SECONDS = 0.5
AWAY_LOG_EVERY = 60
SESSIONS = {
    SessionState.CONNECTED: Session.CONNECTED,
    SessionState.SUSPENDED: Session.SUSPENDED,
    SessionState.LOST: Session.LOST,
}

log = logging.getLogger(__name__)


def read_stored(store: StateStore, name: str, store_id: str = "") -> StoreSnapshot:
    """Read all nodes of a topology from the store. ``store_id`` is the identity of the store at the submission.

    Raises:
        StoreReplaced: The topology is missing in another store.
        StoreError: The store does not answer, or a node cannot be decoded.
    """

    def version(node: Node | None) -> int:
        return -1 if node is None else node.version

    # The execution state comes last: if it is there and still the same topology's, what was read before belongs to it.
    places = (
        paths.master(name), paths.epoch(name), paths.topology(name), paths.packing_plan(name),
        paths.physical_plan(name), paths.wanted_state(name), paths.checkpoints(name), paths.execution_state(name),
    )  # fmt: skip
    nodes = dict(zip(places, store.get_all(places), strict=True))
    if nodes[paths.execution_state(name)] is None and store_id:
        # Read again between two checks: the store may have been lost or restored meanwhile.
        check_identity(store, store_id)
        nodes = dict(zip(places, store.get_all(places), strict=True))
        check_identity(store, store_id)

    def read(path: str, of: Any) -> Any:
        return decoded(path, nodes[path], of)

    execution = read(paths.execution_state(name), message_codecs.EXECUTION_STATE)
    wanted, plan = nodes[paths.wanted_state(name)], nodes[paths.physical_plan(name)]
    epoch, record = nodes[paths.epoch(name)], nodes[paths.checkpoints(name)]
    return StoreSnapshot(
        read(paths.topology(name), message_codecs.TOPOLOGY),
        read(paths.packing_plan(name), message_codecs.PACKING_PLAN),
        read(paths.physical_plan(name), message_codecs.PHYSICAL_PLAN),
        version(plan),
        with_wanted(execution, wanted) if execution else None,
        version(wanted),
        read(paths.master(name), message_codecs.MASTER_LOCATION),
        read(paths.epoch(name), message_codecs.MASTER_EPOCH).epoch if epoch else 0,
        version(epoch),
        read(paths.checkpoints(name), message_codecs.CHECKPOINT_RECORD),
        version(record),
    )


class MasterStore:
    """Runs the core's requests against a store one after the other, and puts the results into ``inbox``.

    ``also`` adds to each read what the store does not hold: the manifest of the last complete checkpoint.
    """

    def __init__(
        self,
        store: StateStore,
        launch: Launch,
        location: MasterLocation,
        inbox: Callable[[Event], None],
        also: Callable[[StoreSnapshot], StoreSnapshot] = lambda stored: stored,
    ) -> None:
        self._store = store
        self._name = launch.topology
        self._store_id = launch.store_id
        self._location = location
        self._inbox = inbox
        self._also = also
        self._requests: asyncio.Queue[StoreRequest] = asyncio.Queue()
        self._reads_waiting = 0
        self._failed_reads = 0  # in a row
        self._undo: list[Callable[[], None]] = []

    def request(self, request: StoreRequest) -> None:
        """Queue a request. Consecutive reads become one."""
        if isinstance(request, ReadStore):
            if self._reads_waiting:
                return
            self._reads_waiting += 1
        else:
            self._reads_waiting = 0  # a later read must come after this write
        self._requests.put_nowait(request)

    async def open(self) -> None:
        """Open the store and watch the nodes that concern the master.

        Raises:
            StoreError: The store cannot be opened.
        """
        loop = asyncio.get_running_loop()

        def changed(_: str) -> None:
            loop.call_soon_threadsafe(self.request, ReadStore())

        def session(state: SessionState) -> None:
            loop.call_soon_threadsafe(self._inbox, SessionChanged(SESSIONS[state]))

        await asyncio.to_thread(self._store.open)
        self._undo.append(self._store.on_session(session))
        for path in (
            paths.execution_state(self._name),
            paths.packing_plan(self._name),
            paths.master(self._name),
        ):
            self._undo.append(await asyncio.to_thread(self._store.watch, path, changed))
        self.request(ReadStore())

    async def run(self) -> None:
        """Serve the queue until cancelled."""
        while True:
            request = await self._requests.get()
            if isinstance(request, ReadStore):
                self._reads_waiting = max(0, self._reads_waiting - 1)
                await self._read()
            else:
                await self._write(request)

    async def close(self) -> None:
        """End the session, so that the master node is removed at once and a standby takes over."""
        for undo in self._undo:
            undo()
        await asyncio.to_thread(self._store.close)

    async def _read(self) -> None:
        try:
            self._inbox(StoreRead(await asyncio.to_thread(self._look)))
            self._failed_reads = 0
        except StoreError as error:
            if self._failed_reads % AWAY_LOG_EVERY == 0:
                log.warning("cannot read the state store, trying again: %s", with_hint(error))
            self._failed_reads += 1
            asyncio.get_running_loop().call_later(RETRY_SECONDS, self.request, ReadStore())

    def _look(self) -> StoreSnapshot:
        return self._also(read_stored(self._store, self._name, self._store_id))

    async def _write(self, request: Write) -> None:
        self.tell(request, *await asyncio.to_thread(self.commit, request))

    def commit(self, request: Write) -> tuple[WriteResult, list[int]]:
        """Run a transaction; return its result and the versions after it. Raises no StoreError."""
        try:
            return WriteResult.DONE, self._store.commit(self._operations(request))
        except TransactionFailed as error:
            log.info("not written: %s", error)
            not_owner = error.path == paths.master(self._name) and not isinstance(request, Campaign)
            return (WriteResult.NOT_OWNER if not_owner else WriteResult.REFUSED), []
        except StoreError as error:
            log.warning("the state store does not answer: %s", error)
            return WriteResult.UNKNOWN, []

    def tell(self, request: Write, result: WriteResult, versions: list[int]) -> None:
        """Report the result of a transaction to the core."""
        if isinstance(request, Campaign):
            self._inbox(CampaignEnded(request.epoch, result))
        elif isinstance(request, CommitTransaction):
            self._inbox(self._ended(request, result, versions))

    def _operations(self, request: Write) -> list[Operation]:
        master = paths.master(self._name)
        if isinstance(request, Resign):
            return [CheckOwner(master), Delete(master)]
        operations: list[Operation]
        if isinstance(request, Campaign):
            location = replace(self._location, epoch=request.epoch)
            epoch = message_codecs.MASTER_EPOCH.encode(MasterEpoch(request.epoch))
            # A killed topology leaves no epoch behind, hence the check of its execution state.
            return [
                Create(master, message_codecs.MASTER_LOCATION.encode(location), ephemeral=True),
                _put(paths.epoch(self._name), epoch, request.epoch_version),
                Check(paths.execution_state(self._name)),
            ]
        operations = [CheckOwner(master)]
        if request.plan is not None:
            plan = message_codecs.PHYSICAL_PLAN.encode(request.plan)
            operations.append(_put(paths.physical_plan(self._name), plan, request.plan_version))
        if request.record is not None:
            record = message_codecs.CHECKPOINT_RECORD.encode(request.record)
            operations.append(_put(paths.checkpoints(self._name), record, request.record_version))
        operations.append(Check(paths.execution_state(self._name)))
        wanted = paths.wanted_state(self._name)
        if request.execution is not None:
            state = WantedState(request.execution.topology_id, request.execution.state)
            operations.append(_put(wanted, message_codecs.WANTED_STATE.encode(state), request.execution_version))
        elif request.execution_version >= 0:
            operations.append(Check(wanted, request.execution_version))
        return operations

    @staticmethod
    def _ended(request: CommitTransaction, result: WriteResult, versions: list[int]) -> TransactionFinished:
        if result is not WriteResult.DONE:
            return TransactionFinished(result)
        return TransactionFinished(
            result,
            versions[1] if request.plan is not None else -1,
            versions[-1] if request.execution is not None else -1,
            versions[1 + (request.plan is not None)] if request.record is not None else -1,
        )


def _put(path: str, data: bytes, version: int) -> Operation:
    return Create(path, data) if version < 0 else Set(path, data, version)
