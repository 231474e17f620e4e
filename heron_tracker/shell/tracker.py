"""The tracker: the clusters it follows, and how a request finds a topology in them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from heron_control.inspection.questions import DEADLINE_SECS
from heron_control.inspection.stream_runs import RUNS
from heron_control.schedulers.topology_folder import Homes
from heron_runtime.failures import NotFound, Unavailable, did_you_mean
from heron_runtime.model.history import HISTORY
from heron_runtime.model.ids import instance_id
from heron_runtime.model.records import TopologyRecord
from heron_runtime.state.local import StoreAddress
from heron_tracker.shell.asking import Asker
from heron_tracker.shell.events import Broadcast
from heron_tracker.shell.self_metrics import Counters
from heron_tracker.shell.watch import Change, ClusterState, ClusterWatch

MAX_QUERIES = 32  # under way, the one that is computed included
T = TypeVar("T")


@dataclass(frozen=True)
class Found:
    """A topology and its cluster. ``stale`` is the cluster's name if its store does not answer, else empty."""

    cluster: str
    record: TopologyRecord
    stale: str

    @property
    def name(self) -> str:
        """The topology's name."""
        return self.record.definition.name

    @property
    def key(self) -> tuple[str, str, str, str]:
        """Cluster, role, environment, name."""
        execution = self.record.execution
        return (self.cluster, execution.role, execution.environ, execution.topology)

    @property
    def components(self) -> dict[str, bool]:
        """Component → is it a spout, in the order of the definition."""
        return {spec.name: spec.is_spout for spec in self.record.definition.components}

    @property
    def instances(self) -> dict[str, int]:
        """Instance → its container, as the packing plan has them."""
        plans = self.record.packing.containers
        return {instance_id(p.container, i.component, i.task): p.container for p in plans for i in p.instances}

    def component(self, name: str) -> str:
        """The name as a topology master wants it: ``*`` is all. Raises NotFound for one that is not there."""
        if name == "*":
            return ""
        if name not in self.components and not name.startswith("__"):
            known = ", ".join(self.components)
            raise NotFound(f"{self.name} has no component {name!r}; it has {known}")
        return name


class Tracker:
    """Everything that requests share. ``start`` and ``stop`` are called on the loop that serves.

    ``home`` is where the folders of all topologies are, with the keys by which their processes can be asked;
    ``history`` where histories are kept, by default in it.
    """

    def __init__(
        self, clusters: Mapping[str, StoreAddress], home: Path = Path(), deadline_seconds: float = DEADLINE_SECS,
        history: Path | None = None,
    ) -> None:  # fmt: skip
        self.history = history or home / HISTORY
        self.runs = home / RUNS
        self.counters = Counters()
        self.asker = Asker(self.counters, deadline_seconds)
        self.events = Broadcast(self.counters.listeners)
        self.watches = {
            name: ClusterWatch(address, Homes(home, name), self._changed) for name, address in clusters.items()
        }
        self._thread = ThreadPoolExecutor(1, "query")
        self._queries = 0

    async def beside(self, compute: Callable[[], T]) -> T:
        """What ``compute`` returns, on a thread of its own, one after the other, so that the loop goes on answering.
        Raises what it raises, and Unavailable while MAX_QUERIES wait."""
        if self._queries >= MAX_QUERIES:
            raise Unavailable(f"{MAX_QUERIES} queries are being answered, which is the most")
        self._queries += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._thread, compute)
        finally:
            self._queries -= 1

    async def start(self) -> None:
        """Begin to follow the clusters; does not wait for them."""
        self.counters.lag.start()
        for watch in self.watches.values():
            watch.start()

    async def stop(self) -> None:
        """End. Idempotent."""
        self.counters.lag.stop()
        self.events.close()
        await asyncio.gather(*(watch.stop() for watch in self.watches.values()))
        await self.asker.close()
        self._thread.shutdown(wait=False, cancel_futures=True)

    def _changed(self, change: Change) -> None:
        state = self.watches[change.cluster].state
        self.counters.cluster(change.cluster, len(state.topologies), state.stale)
        self.events.tell(change)

    def clusters(self, names: Iterable[str] = ()) -> list[ClusterState]:
        """These clusters, or all. Raises NotFound, and Unavailable while one has never been read."""
        asked = tuple(names)
        for name in asked:
            self._cluster(name)
        states = [watch.state for name, watch in self.watches.items() if not asked or name in asked]
        unread = [state for state in states if not state.read_at]
        if unread and (asked or len(unread) == len(states)):
            raise Unavailable(f"the state store of {unread[0].name} does not answer: {unread[0].error}")
        return states

    def stale(self, names: Iterable[str] = ()) -> str:
        """The stale ones among these clusters, or all, in words; empty if there is none."""
        return ", ".join(state.name for state in self.clusters(names) if state.stale)

    def topologies(
        self, clusters: Iterable[str] = (), environs: Iterable[str] = (), role: str | None = None
    ) -> list[Found]:
        """Those that run there, in order of cluster, role, environment and name. Raises NotFound, Unavailable."""
        found = list(self._all(self.clusters(clusters)))
        wanted = frozenset(environs)
        chosen = [
            f
            for f in found
            if (not wanted or f.record.execution.environ in wanted) and role in (None, f.record.execution.role)
        ]
        return sorted(chosen, key=lambda f: f.key)

    def find(self, cluster: str, environ: str, topology: str, role: str | None = None) -> Found:
        """One topology. Raises NotFound, which proposes the nearest name, and Unavailable."""
        (state,) = self.clusters((cluster,))
        record = state.topologies.get(topology)
        if record is None:
            if topology in state.unreadable:
                raise Unavailable(state.unreadable[topology])
            hint = did_you_mean(topology, state.topologies)
            raise NotFound(f"there is no topology {topology!r} in {cluster}{hint}")
        place = record.execution
        if place.environ != environ or role not in (None, place.role):
            raise NotFound(f"{topology!r} is not there but at {cluster}/{place.role}/{place.environ}")
        return Found(cluster, record, state.name if state.stale else "")

    def _all(self, states: Iterable[ClusterState]) -> Iterator[Found]:
        for state in states:
            for record in state.topologies.values():
                yield Found(state.name, record, state.name if state.stale else "")

    def _cluster(self, name: str) -> ClusterWatch:
        watch = self.watches.get(name)
        if watch is None:
            raise NotFound(f"this tracker knows no cluster {name!r}; it knows {', '.join(self.watches) or 'none'}")
        return watch
