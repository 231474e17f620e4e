"""State shared by all requests: the clusters, the lookup of topologies, and a bounded pool for queries."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from heron_control.inspection.process_requests import DEADLINE_SECS
from heron_control.inspection.streaming_runs import RUNS
from heron_control.schedulers.topology_folder import Homes
from heron_runtime.failures import NotFound, Unavailable, did_you_mean
from heron_runtime.model.history import HISTORY
from heron_runtime.model.ids import instance_id
from heron_runtime.model.records import TopologyRecord
from heron_runtime.state import StoreAddress
from heron_tracker.cluster_watch import ClusterSnapshot, ClusterWatch
from heron_tracker.events import EventBroadcast
from heron_tracker.process_queries import SharedProcessClient
from heron_tracker.self_metrics import TrackerMetrics

MAX_QUERIES = 32  # including the one that is running
T = TypeVar("T")


@dataclass(frozen=True)
class TrackedTopology:
    """A topology and its cluster. ``stale`` is the cluster's name if its store does not answer, else empty."""

    cluster: str
    record: TopologyRecord
    stale: str

    @property
    def name(self) -> str:
        """Return the name of the topology."""
        return self.record.definition.name

    @property
    def key(self) -> tuple[str, str, str, str]:
        """Return cluster, role, environment and name."""
        execution = self.record.execution
        return (self.cluster, execution.role, execution.environ, execution.topology)

    @property
    def components(self) -> dict[str, bool]:
        """Return whether each component is a spout, in the order of the definition."""
        return {spec.name: spec.is_spout for spec in self.record.definition.components}

    @property
    def instances(self) -> dict[str, int]:
        """Return the container of each instance in the packing plan."""
        plans = self.record.packing.containers
        return {instance_id(p.container, i.component, i.task): p.container for p in plans for i in p.instances}

    def component(self, name: str) -> str:
        """Return a component's name for the topology master, empty for ``*``. Raises NotFound."""
        if name == "*":
            return ""
        if name not in self.components and not name.startswith("__"):
            known = ", ".join(self.components)
            raise NotFound(f"{self.name} has no component {name!r}; its components are {known}")
        return name


class Tracker:
    """Clusters, process client, event streams and query pool. ``start`` and ``stop`` run on the loop that serves.

    Args:
        clusters: store address of each cluster.
        home: folders of all topologies, with the keys for calls to their processes.
        deadline_seconds: deadline of a call.
        history: folder of histories, by default in the home.
    """

    def __init__(
        self, clusters: Mapping[str, StoreAddress], home: Path = Path(), deadline_seconds: float = DEADLINE_SECS,
        history: Path | None = None,
    ) -> None:  # fmt: skip
        self.history = history or home / HISTORY
        self.runs = home / RUNS
        self.metrics = TrackerMetrics()
        self.processes = SharedProcessClient(self.metrics, deadline_seconds)
        self.events = EventBroadcast(self.metrics)
        self.watches = {
            name: ClusterWatch(address, Homes(home, name), self.events, self.metrics)
            for name, address in clusters.items()
        }
        self._thread = ThreadPoolExecutor(1, "query")
        self._queries = 0

    async def run_query(self, compute: Callable[[], T]) -> T:
        """Run a function on the query thread, one after the other, and return its result.

        Raises:
            Unavailable: ``MAX_QUERIES`` are waiting.
        """
        if self._queries >= MAX_QUERIES:
            raise Unavailable(f"{MAX_QUERIES} queries are in progress, the maximum")
        self._queries += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._thread, compute)
        finally:
            self._queries -= 1

    async def start(self) -> None:
        """Start to follow the clusters without waiting for them."""
        self.metrics.lag.start()
        for watch in self.watches.values():
            watch.start()

    async def stop(self) -> None:
        """Stop. Idempotent."""
        self.metrics.lag.stop()
        self.events.close()
        await asyncio.gather(*(watch.stop() for watch in self.watches.values()))
        await self.processes.close()
        self._thread.shutdown(wait=False, cancel_futures=True)

    def clusters(self, names: Iterable[str] = ()) -> list[ClusterSnapshot]:
        """Return these clusters, or all. Raises NotFound, and Unavailable if one has never been read."""
        wanted = tuple(names)
        for name in wanted:
            self._watch_of(name)
        states = [watch.state for name, watch in self.watches.items() if not wanted or name in wanted]
        unread = [state for state in states if not state.read_at]
        if unread and (wanted or len(unread) == len(states)):
            raise Unavailable(f"the state store of {unread[0].name} does not answer: {unread[0].error}")
        return states

    def stale(self, names: Iterable[str] = ()) -> str:
        """Return the names of the stale clusters among these, or among all; empty if none is stale."""
        return ", ".join(state.name for state in self.clusters(names) if state.stale)

    def topologies(
        self, clusters: Iterable[str] = (), environs: Iterable[str] = (), role: str | None = None
    ) -> list[TrackedTopology]:
        """Return the topologies, sorted by cluster, role, environment and name. Raises NotFound, Unavailable."""
        tracked = list(self._all(self.clusters(clusters)))
        wanted = frozenset(environs)
        chosen = [
            f
            for f in tracked
            if (not wanted or f.record.execution.environ in wanted) and role in (None, f.record.execution.role)
        ]
        return sorted(chosen, key=lambda f: f.key)

    def find(self, cluster: str, environ: str, topology: str, role: str | None = None) -> TrackedTopology:
        """Return one topology. Raises NotFound, which suggests the nearest name, and Unavailable."""
        (state,) = self.clusters((cluster,))
        record = state.topologies.get(topology)
        if record is None:
            if topology in state.unreadable:
                raise Unavailable(state.unreadable[topology])
            hint = did_you_mean(topology, state.topologies)
            raise NotFound(f"topology {topology!r} not found in {cluster}{hint}")
        place = record.execution
        if place.environ != environ or role not in (None, place.role):
            raise NotFound(f"{topology!r} runs in {cluster}/{place.role}/{place.environ}")
        return TrackedTopology(cluster, record, state.name if state.stale else "")

    def _all(self, states: Iterable[ClusterSnapshot]) -> Iterator[TrackedTopology]:
        for state in states:
            for record in state.topologies.values():
                yield TrackedTopology(state.name, record, state.name if state.stale else "")

    def _watch_of(self, name: str) -> ClusterWatch:
        watch = self.watches.get(name)
        if watch is None:
            raise NotFound(f"unknown cluster {name!r}; this tracker follows {', '.join(self.watches) or 'none'}")
        return watch
