"""The stream to the topology master: found through the state store, or where it was last when the store is away."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable

from heronry.launch import Launch
from heronry.model.stored import MasterLocation
from heronry.net.rpc import credentials, make_channel
from heronry.net.services import MASTER_SERVICE
from heronry.state import paths, store_of
from heronry.state.store import StateStore, StoreError
from heronry.wire.codec import MASTER_LOCATION
from heronry.wire.errors import MalformedMessage
from heronry.wire.master import FromMaster, ToMaster
from stream_manager.shell.host import Host
from stream_manager.shell.streams import Connection

BACKOFF_MIN_SECONDS = 0.1
BACKOFF_MAX_SECONDS = 2.0

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

    def __init__(self, host: Host, secret: str) -> None:
        self._host = host
        self._secret = secret
        self._location: MasterLocation | None = None
        self._moved = asyncio.Event()
        self._connection: Connection | None = None
        self._said = ""
        host.tell_master = self._tell
        host.refuse_master = self._refuse

    def set_location(self, location: MasterLocation) -> None:
        """The master is here now."""
        if location != self._location:
            log.info("topology master: %s:%d, epoch %d", location.host, location.port, location.epoch)
            self._location = location
            self._moved.set()
            if self._connection is not None:
                self._connection.end("the master is elsewhere now")

    async def run(self) -> None:
        """Connect, again and again."""
        delay = BACKOFF_MIN_SECONDS
        while True:
            if self._location is not None:
                heard = await self._connect(self._location)
                delay = BACKOFF_MIN_SECONDS if heard else delay
            try:
                async with asyncio.timeout(None if self._location is None else delay):
                    await self._moved.wait()
                delay = BACKOFF_MIN_SECONDS
            except TimeoutError:
                delay = min(2 * delay, BACKOFF_MAX_SECONDS)
            self._moved.clear()

    async def _connect(self, location: MasterLocation) -> bool:
        """One connection. True if the master said anything."""
        core, heard = self._host.core, False

        def handle(message: FromMaster) -> None:
            nonlocal heard
            if not heard:
                log.info("topology master: registered")
            heard, self._said = True, ""
            self._host.act(core.handle_master_message(message))

        async with make_channel(f"{location.host}:{location.port}") as channel:
            stream = MASTER_SERVICE.call(channel, "StreamManager")(
                metadata=credentials(self._secret, core.topology_id)
            )
            self._connection = connection = Connection(0, "topology master", self._gone)
            self._host.act(core.handle_master_connected())
            try:
                await connection.converse(stream.read, handle, connection.control.run(stream.write))
            finally:
                self._connection = None
                stream.cancel()
        return heard

    def _gone(self, reason: str) -> None:
        if reason != self._said:  # once, not at every attempt
            self._said = reason
            log.warning("topology master: %s", reason)
        self._host.act(self._host.core.handle_master_gone())

    def _tell(self, message: ToMaster) -> None:
        if self._connection is not None:
            self._connection.control.put(message)

    def _refuse(self, reason: str) -> None:
        if self._connection is not None:
            self._connection.end(reason)


