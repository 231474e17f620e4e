"""Follows the state store of one cluster and keeps its last known state.

Watches on the folders of the tree and of each topology only report that something changed. Then everything is read
again: a store of a thousand topologies reads in a fraction of a second, and changes are rare, since neither metrics
nor heartbeats go through it. Each reading is an immutable ``ClusterSnapshot`` that replaces the one before, so
requests never see half a change and never wait for the store. When the store does not answer, the last snapshot
stays and is marked stale, and the watch retries until it can read everything again. A check every ``CHECK_SECONDS``
detects a store that disappeared silently.

Store calls run in threads of this watch, so a store that hangs blocks its own cluster only.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import TypeVar

from heron_control.schedulers.topology_folder import Homes
from heron_runtime.failures import NotAllowed
from heron_runtime.model.records import TopologyRecord
from heron_runtime.state import StoreAddress, open_address, paths
from heron_runtime.state.store import SessionState, StateStore, StoreError, StoreMissing, check_identity, store_identity
from heron_runtime.state.topologies import NoSuchTopology, read_topology
from heron_tracker.events import EventBroadcast, StoreChange
from heron_tracker.self_metrics import TrackerMetrics

WATCHED = (paths.EXECUTION_STATES, paths.TOPOLOGIES, paths.PACKING_PLANS)
CHECK_SECONDS = 2.0
SETTLE_SECONDS = 0.05  # changes within this time are read together
RETRY_SECONDS = (0.2, 5.0)
PATIENCE_SECONDS = 8.0  # longer calls count as no answer

log = logging.getLogger(__name__)
T = TypeVar("T")


@dataclass(frozen=True)
class ClusterSnapshot:
    """Known state of a cluster. ``read_at`` (seconds since 1970) is 0 before the first reading."""

    name: str
    topologies: Mapping[str, TopologyRecord] = field(default_factory=dict)
    unreadable: Mapping[str, str] = field(default_factory=dict)
    read_at: float = 0.0
    stale: bool = True
    error: str = "the state store has not been read yet"


class ClusterWatch:
    """Watch of one cluster.

    Args:
        address: state store of the cluster.
        homes: folders of the cluster's topologies.
        broadcast: receives each change.
        metrics: receives the state after each change.
    """

    def __init__(self, address: StoreAddress, homes: Homes, broadcast: EventBroadcast, metrics: TrackerMetrics) -> None:
        self.name = homes.cluster
        self.state = ClusterSnapshot(self.name)
        self._homes = homes
        self.address = address
        self._broadcast = broadcast
        self._metrics = metrics
        self._store: StateStore | None = None
        self._store_id = ""  # of the store that had the known topologies
        self._dirty = asyncio.Event()
        self._wake: Callable[[object], None] = lambda _: None
        self._undo: dict[str, list[Callable[[], None]]] = {}  # the watches on each topology's own folders
        self._threads = ThreadPoolExecutor(max_workers=2, thread_name_prefix=f"store {self.name}")
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Start to follow the store."""
        self._task = asyncio.get_running_loop().create_task(self._run(), name=f"watch {self.name}")

    async def stop(self) -> None:
        """Stop. Idempotent."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None
        await self._leave()
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def _run(self) -> None:
        delay = RETRY_SECONDS[0]
        while True:
            try:
                await self._join()
                delay = RETRY_SECONDS[0]
                await self._follow()
            except (StoreError, OSError, TimeoutError) as error:
                if isinstance(error, StoreMissing) and not (self.state.topologies or self._homes.has_topologies()):
                    self._take(ClusterSnapshot(self.name, read_at=time.time(), stale=False, error=""))
                    delay = RETRY_SECONDS[0]  # nothing has been submitted yet
                else:
                    self._went_stale(str(error) or "the state store does not answer")
            except Exception as error:
                log.exception("failure while following the state store of %s", self.name)
                self._went_stale(f"{type(error).__name__}: {error}")
            await self._leave()
            await asyncio.sleep(delay)
            delay = min(delay * 2, RETRY_SECONDS[1])

    async def _join(self) -> None:
        """Open the store and watch it. Raises StoreError, OSError, TimeoutError."""
        loop = asyncio.get_running_loop()

        def wake(_: object) -> None:
            with contextlib.suppress(RuntimeError):  # the loop has ended
                loop.call_soon_threadsafe(self._dirty.set)

        def join() -> StateStore:
            store = open_address(self.address, create=False)
            store.open()
            try:
                for folder in WATCHED:
                    store.watch(folder, wake)
                store.on_session(wake)
            except BaseException:
                store.close()
                raise
            return store

        self._wake, self._undo = wake, {}
        self._store = await self._in_thread(join)

    async def _follow(self) -> None:
        """Read now and after each change, until the store fails. Raises StoreError, OSError, TimeoutError."""
        store = self._store
        assert store is not None
        while True:
            self._dirty.clear()
            await self._in_thread(self._watch_folders, store)
            self._take(await self._in_thread(self._read, store))
            while not self._dirty.is_set():
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(CHECK_SECONDS):
                        await self._dirty.wait()
                if store.session() is SessionState.SUSPENDED:
                    raise StoreError("the state store does not answer")
                if not self._dirty.is_set():
                    await self._in_thread(store.children, paths.EXECUTION_STATES)
            await asyncio.sleep(SETTLE_SECONDS)

    def _read(self, store: StateStore) -> ClusterSnapshot:
        """Read all topologies. Raises StoreReplaced if all are gone because the store has lost them, StoreError."""
        entries = _read_all(store, self._homes)
        if self.state.topologies and not entries.topologies:
            check_identity(store, self._store_id)
            entries = _read_all(store, self._homes)  # the store may have been restored between reading and check
            check_identity(store, self._store_id)
        else:
            self._store_id = store_identity(store)
        return entries

    def _watch_folders(self, store: StateStore) -> None:
        """Watch the folders of each topology. A watch precedes the reading that it guards."""
        there = set(store.children(paths.EXECUTION_STATES))
        for topology in self._undo.keys() - there:
            for undo in self._undo.pop(topology):
                undo()
        for topology in sorted(there - self._undo.keys()):
            self._undo[topology] = [store.watch(folder, self._wake) for folder in paths.folders(topology)]

    async def _leave(self) -> None:
        store, self._store = self._store, None
        if store is not None:
            with contextlib.suppress(Exception):
                await self._in_thread(store.close)

    async def _in_thread(self, function: Callable[..., T], *arguments: object) -> T:
        """Run a function in a thread of this watch. Raises TimeoutError and abandons the thread after a timeout."""
        loop = asyncio.get_running_loop()
        call = loop.run_in_executor(self._threads, lambda: function(*arguments))
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                return await asyncio.shield(call)
        except TimeoutError:
            # A hanging thread is lost; the next attempt needs another one.
            self._threads.shutdown(wait=False)
            self._threads = ThreadPoolExecutor(max_workers=2, thread_name_prefix=f"store {self.name}")
            raise TimeoutError(f"the state store did not answer within {PATIENCE_SECONDS:g} s") from None

    def _take(self, new: ClusterSnapshot) -> None:
        old, self.state = self.state, new
        if old.stale:
            if old.read_at:
                log.info("the state store of %s answers again", self.name)
            self._publish("", "back")
        for name in old.topologies.keys() - new.topologies.keys():
            self._publish(name, "removed")
        for name, record in new.topologies.items():
            before = old.topologies.get(name)
            if before != record:
                self._publish(name, "changed" if before is not None else "added")

    def _publish(self, topology: str, what: str) -> None:
        record = self.state.topologies.get(topology)
        self._metrics.cluster(self.name, len(self.state.topologies), self.state.stale)
        self._broadcast.publish(StoreChange(self.name, topology, what, record.execution.environ if record else ""))

    def _went_stale(self, why: str) -> None:
        if not self.state.stale:
            log.warning("the state store of %s: %s; its last known state is served", self.name, why)
            self.state = replace(self.state, stale=True, error=why)
            self._publish("", "stale")
        else:
            self.state = replace(self.state, error=why)


def _read_all(store: StateStore, homes: Homes) -> ClusterSnapshot:
    """Read all topologies. Raises StoreError.

    The home in a record is not trusted, because user code may be able to write it.
    """
    records: dict[str, TopologyRecord] = {}
    unreadable: dict[str, str] = {}
    for topology in store.children(paths.EXECUTION_STATES):
        try:
            records[topology] = homes.believed(read_topology(store, topology))
        except NoSuchTopology:
            continue  # killed between both reads
        except StoreError as error:
            if store.session() is not SessionState.CONNECTED:
                raise
            unreadable[topology] = str(error)
        except NotAllowed as error:
            unreadable[topology] = str(error)
    return ClusterSnapshot(homes.cluster, records, unreadable, time.time(), stale=False, error="")
