"""Sink ``tmanager``: sends changes to the leading topology master, and everything to a new leader.

The sink reads the address of the leader from the state store at each flush, and uses the last known one while the store
is unavailable. Each reply contains the epoch of the leader. While the epoch is unchanged, only processes that changed
since the last reply are sent. After a change of the leader everything is sent again, which is harmless
(``heron_runtime.telemetry.totals``).
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import grpc.aio

from heron_runtime.model.records import MasterLocation
from heron_runtime.net.identity import identity_of
from heron_runtime.net.rpc import MASTER_SERVICE, make_channel
from heron_runtime.state import paths, store_of
from heron_runtime.state.store import StateStore, StoreError
from heron_runtime.state.topologies import decoded
from heron_runtime.wire import message_codecs
from heron_runtime.wire.master import PublishMetrics, PublishReply
from metrics_manager.sinks import SinkContext

PUBLISH_SECONDS = 5.0


class TopologyMasterSink:
    """Publishes metrics to the leading topology master."""

    async def open(self, context: SinkContext) -> None:
        """Open the state store.

        Raises:
            StoreError: The store is unavailable.
            OSError: A file cannot be read.
        """
        self._context = context
        self._identity = await asyncio.to_thread(identity_of, context.launch)
        self._epoch = 0
        self._sent = 0
        self._location: MasterLocation | None = None
        self._channel: grpc.aio.Channel | None = None
        self._publish: Callable[..., Any] | None = None
        self._store: StateStore = store_of(context.launch)
        await asyncio.to_thread(self._store.open)

    async def flush(self) -> None:
        """Publish what is new to the leader.

        Raises:
            StoreError: The state store is unavailable.
            grpc.aio.AioRpcError: The leader does not answer.
        """
        try:
            await self._find()
        except StoreError:
            if self._publish is None:
                raise
        if self._publish is None:
            return
        version = self._context.metrics.version
        reply = await self._send(self._sent)
        if reply.epoch < self._epoch:  # a deposed master does not know it yet
            raise StoreError(f"the topology master that answers has epoch {reply.epoch}, and {self._epoch} is known")
        if reply.epoch != self._epoch and self._sent:
            reply = await self._send(0)
        self._epoch, self._sent = reply.epoch, version

    async def close(self) -> None:
        """Close the store and the connection."""
        if self._channel is not None:
            with contextlib.suppress(Exception):
                await self._channel.close()
        await asyncio.to_thread(self._store.close)

    async def _find(self) -> None:
        path = paths.master(self._context.launch.topology)
        location = decoded(path, await asyncio.to_thread(self._store.get, path), message_codecs.MASTER_LOCATION)
        if location is not None and location == self._location:
            return
        if self._channel is not None:
            await self._channel.close()
        self._location, self._channel, self._publish = location, None, None
        if location is not None and location.topology_id == self._context.launch.topology_id:
            self._channel = make_channel(f"{location.host}:{location.port}", self._identity)
            self._publish = MASTER_SERVICE.call(self._channel, "PublishMetrics")

    async def _send(self, after: int) -> PublishReply:
        assert self._publish is not None
        entries = self._context.metrics.entries(after)  # what happened is the history's, which a master does not keep
        reports = tuple(replace(e, happenings=(), happened=0) if e.happened else e for e in entries)
        message = PublishMetrics(self._context.container, reports, time.time())
        metadata = self._identity.metadata()
        reply: PublishReply = await self._publish(message, timeout=PUBLISH_SECONDS, metadata=metadata)
        return reply
