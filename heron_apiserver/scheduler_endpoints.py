"""gRPC endpoints for schedulers without a process per topology.

Trackers and ``heron status`` find a topology's scheduler at ``/schedulers/<topology>/acting`` and call it over gRPC
with the topology's key. So there is one small server and one ephemeral node for each topology, refreshed every few
seconds.
"""

from __future__ import annotations

import asyncio
import logging
import os
from dataclasses import dataclass

import grpc
import grpc.aio

from heron_apiserver.topologies import PlacedTopologies
from heron_control.schedulers.node_registration import NodeRegistration
from heron_control.schedulers.scheduler import SchedulerError
from heron_control.web.names import is_loopback
from heron_runtime.launch import Launch
from heron_runtime.model.records import SchedulerLocation
from heron_runtime.net.identity import Identity
from heron_runtime.net.rpc import SCHEDULER_SERVICE, make_server
from heron_runtime.state import paths
from heron_runtime.state.wrappers import CachedStore
from heron_runtime.wire import message_codecs
from heron_runtime.wire.container import RestartContainer, RestartReply, SchedulerStatus, SchedulerStatusRequest

RESTART_SECONDS = 120.0
log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Served:
    topology: str
    server: grpc.aio.Server
    store: CachedStore  # owner of the node
    presence: NodeRegistration


class SchedulerEndpoints:
    """Endpoints of all topologies. Belongs to one event loop.

    Args:
        topologies: topologies of the cluster.
        advertise: host under which other processes reach this one.
    """

    def __init__(self, topologies: PlacedTopologies, advertise: str) -> None:
        self._topologies = topologies
        self._advertise = advertise
        self._served: dict[str, _Served] = {}

    async def refresh(self) -> None:
        """Serve exactly the topologies that are placed. Raises StoreError."""
        launches = self._topologies.launches
        for topology_id in [known for known in self._served if known not in launches]:
            await self._leave(topology_id)
        for topology_id, launch in launches.items():
            if topology_id not in self._served:
                if await asyncio.to_thread(self._status, launch) is None:
                    continue  # the topology has a scheduler process
                identity = self._topologies.find_identity(topology_id)
                if identity is None:
                    continue  # killed meanwhile
                self._served[topology_id] = await self._serve(launch, identity)
            await asyncio.to_thread(self._served[topology_id].presence.keep)

    async def close(self) -> None:
        """Stop all servers. Their nodes end with the store's session."""
        served, self._served = self._served, {}
        for one in served.values():
            one.store.detach()
        await asyncio.gather(*(one.server.stop(0.2) for one in served.values()))

    async def _leave(self, topology_id: str) -> None:
        """Withdraw the node, since the session lives on and the next submission needs the place."""
        served = self._served[topology_id]
        served.store.detach()  # before the node is removed, which ends the watches of this store
        await asyncio.to_thread(served.presence.withdraw)
        await asyncio.to_thread(
            self._topologies.submissions.clear_if_gone, served.topology
        )  # the folder, if this process recreated it
        del self._served[topology_id]
        await served.server.stop(0.2)

    def _status(self, launch: Launch) -> SchedulerStatus | None:
        try:
            return self._topologies.submissions.scheduler.status(launch)
        except SchedulerError as error:
            log.warning("%s", error)
            return None

    async def _serve(self, launch: Launch, identity: Identity) -> _Served:
        async def answer(_: SchedulerStatusRequest, context: grpc.aio.ServicerContext) -> SchedulerStatus:
            status = await asyncio.to_thread(self._status, launch)
            if status is None:
                await context.abort(grpc.StatusCode.UNAVAILABLE, "the scheduler has no status at this moment")
            assert status is not None
            return status

        async def restart(request: RestartContainer, context: grpc.aio.ServicerContext) -> RestartReply:
            try:
                done = await asyncio.to_thread(
                    self._topologies.submissions.scheduler.restart, launch, request.container, RESTART_SECONDS
                )
            except SchedulerError as error:
                await context.abort(grpc.StatusCode.FAILED_PRECONDITION, str(error))
                raise
            return RestartReply(done)

        place = paths.scheduler(launch.topology)
        store = CachedStore(self._topologies.submissions.store, [place])
        await asyncio.to_thread(store.attach)
        handler = SCHEDULER_SERVICE.handler(Status=answer, Restart=restart)
        address = "127.0.0.1:0" if is_loopback(self._advertise) else "0.0.0.0:0"
        server, port = make_server(identity, address, [handler])
        await server.start()
        location = SchedulerLocation(launch.topology_id, self._advertise, port, os.getpid())
        data = message_codecs.SCHEDULER_LOCATION.encode(location)
        return _Served(launch.topology, server, store, NodeRegistration(store, place, data))
