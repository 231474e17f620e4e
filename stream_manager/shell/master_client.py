"""The stream to the topology master: found through the state store, or where it was last when the store is away."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable

from heron_runtime.launch import Launch
from heron_runtime.model.stored import MasterLocation
from heron_runtime.net.identity import Identity
from heron_runtime.net.rpc import make_channel
from heron_runtime.net.services import MASTER_SERVICE
from heron_runtime.state import paths, store_of
from heron_runtime.state.store import StateStore, StoreError
from heron_runtime.wire.codec import MASTER_LOCATION
from heron_runtime.wire.errors import MalformedMessage
from heron_runtime.wire.master import FromMaster
from stream_manager.core.effects import RefuseMaster, TellMaster
from stream_manager.core.events import MasterConnected, MasterGone, MasterHeard
from stream_manager.shell.dialer import BACKOFF_MAX_SECONDS, BACKOFF_MIN_SECONDS, Dialer
from stream_manager.shell.host import Host
from stream_manager.shell.streams import Connection

log = logging.getLogger(__name__)


class MasterWatch:
    """Follows the master's node in the state store; ``found`` gets each new location and its bytes."""

    def __init__(self, launch: Launch, found: Callable[[MasterLocation, bytes], None]) -> None:
        self._launch = launch
        self._found = found
        self._changed = asyncio.Event()

    async def run(self) -> None:
        """Watch until cancelled; a store that is away is asked again."""
        loop = asyncio.get_running_loop()
        store = store_of(self._launch)
        path = paths.master(self._launch.topology)

        def changed(_: str) -> None:  # on a thread of the store
            with contextlib.suppress(RuntimeError):  # the loop may be closed already
                loop.call_soon_threadsafe(self._changed.set)

        delay = BACKOFF_MIN_SECONDS
        is_open = False
        try:
            while True:
                try:
                    if not is_open:
                        await asyncio.to_thread(store.open)
                        await asyncio.to_thread(store.watch, path, changed)
                        is_open = True
                    await self._look(store, path)
                    delay = BACKOFF_MIN_SECONDS
                    await self._changed.wait()
                except StoreError as error:
                    log.warning("state store: %s; going on with what is known", error)
                    await asyncio.sleep(delay)
                    delay = min(2 * delay, BACKOFF_MAX_SECONDS)
        finally:
            with contextlib.suppress(StoreError):
                await asyncio.to_thread(store.close)

    async def _look(self, store: StateStore, path: str) -> None:
        self._changed.clear()
        node = await asyncio.to_thread(store.get, path)
        if node is None:
            return  # between two masters; the last one may come back to its place
        try:
            location = MASTER_LOCATION.decode(node.data)
        except MalformedMessage as error:
            log.warning("%s: %s", path, error)
            return
        if location.topology_id == self._launch.topology_id:
            self._found(location, node.data)


class MasterClient:
    """Keeps a stream to the master: registers, sends what the core says, hands it what the master says."""

    def __init__(self, host: Host, identity: Identity) -> None:
        self._host = host
        self._identity = identity
        self._dialer = Dialer("topology master", self._connect)
        self.run = self._dialer.run
        host.on(TellMaster, self._tell)
        host.on(RefuseMaster, self._refuse)

    def set_location(self, location: MasterLocation) -> None:
        """The master is here now."""
        if self._dialer.set_target(location):
            log.info("topology master: %s:%d, epoch %d", location.host, location.port, location.epoch)

    async def _connect(self, location: MasterLocation) -> bool:
        """One connection. True if the master said anything."""
        heard = False

        def handle(message: FromMaster) -> None:
            nonlocal heard
            if not heard:
                log.info("topology master: registered")
            heard = True
            self._dialer.answered()
            self._host.handle(MasterHeard(message))

        async with make_channel(f"{location.host}:{location.port}", self._identity) as channel:
            stream = MASTER_SERVICE.call(channel, "StreamManager")(metadata=self._identity.metadata())
            self._dialer.connection = connection = Connection(0, "topology master", self._gone)
            self._host.handle(MasterConnected())
            try:
                await connection.converse(stream, handle, connection.control)
            finally:
                self._dialer.connection = None
                stream.cancel()
        return heard

    def _gone(self, reason: str) -> None:
        self._dialer.failed(reason)
        self._host.handle(MasterGone())

    def _tell(self, effect: TellMaster) -> None:
        if self._dialer.connection is not None:
            self._dialer.connection.send(effect.message)

    def _refuse(self, effect: RefuseMaster) -> None:
        if self._dialer.connection is not None:
            self._dialer.connection.end(effect.reason)
