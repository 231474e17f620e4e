"""What heron_scheduler serves over gRPC: its containers, and the restart of one or all (authenticated)."""

from __future__ import annotations

import asyncio

import grpc
import grpc.aio

from heron_control.schedulers.scheduler import ALL
from heron_runtime.launch import Launch
from heron_runtime.model.settings import Keys, setting
from heron_runtime.net.identity import identity_of
from heron_runtime.net.rpc import make_server
from heron_runtime.net.services import SCHEDULER_SERVICE
from heron_runtime.wire.container import (
    RestartContainer,
    RestartReply,
    SchedulerStatus,
    SchedulerStatusRequest,
)
from heron_scheduler.shell.scheduler import ContainersShell

RESTART_MARGIN_SECONDS = 15.0


async def serve(launch: Launch, containers: ContainersShell) -> tuple[grpc.aio.Server, int]:
    """Start the server on a free port; returns it and its port. Raises OSError, RuntimeError."""
    patience = 2 * setting(launch.settings, Keys.HERON_STOP_GRACE_SECS) + RESTART_MARGIN_SECONDS

    async def answer_status(_: SchedulerStatusRequest, __: grpc.aio.ServicerContext) -> SchedulerStatus:
        return containers.status()

    async def restart(request: RestartContainer, context: grpc.aio.ServicerContext) -> RestartReply:
        if containers.core.stopping:
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, "the topology is being killed")
        known = sorted(number for number, row in containers.core.rows.items() if row.wanted)
        numbers = known if request.container == ALL else [request.container]
        if not set(numbers) <= set(known):
            await context.abort(grpc.StatusCode.NOT_FOUND, f"no container {request.container}; there are {known}")
        try:
            async with asyncio.timeout(patience):
                return RestartReply(await containers.restart(numbers))
        except TimeoutError:
            await context.abort(grpc.StatusCode.DEADLINE_EXCEEDED, f"not all of {numbers} came back in {patience} s")
            raise

    handler = SCHEDULER_SERVICE.handler(Status=answer_status, Restart=restart)
    server, port = make_server(identity_of(launch), f"{launch.bind_host}:0", [handler])
    await server.start()
    return server, port
