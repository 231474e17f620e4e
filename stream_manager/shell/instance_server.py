"""Serves the local instances, on the container's Unix socket (``heron_runtime/net/link.py``)."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable

from heron_runtime.net.frames import Tag
from heron_runtime.net.handshake import LinkRefused, Opening
from heron_runtime.net.link import HANDSHAKE_SECONDS, LinkStream, accept, refuse
from heron_runtime.wire.control import InstanceHello
from heron_runtime.wire.errors import MalformedMessage
from stream_manager.core.events import ConnectionOpened
from stream_manager.shell.driver import CoreDriver

BACKLOG = 1024  # every instance of a container may come at the same moment, with two streams

log = logging.getLogger(__name__)


class InstanceServer:
    """Accepts streams until it is stopped. Each costs an asyncio task, and what is wrong with one ends that one.

    ``key_of`` knows the key of each task of the topology.
    """

    def __init__(self, host: CoreDriver, key_of: Callable[[int], str]) -> None:
        self._host = host
        self._key_of = key_of
        self._server: asyncio.AbstractServer | None = None
        self._serving: set[asyncio.Task[None]] = set()

    async def start(self, path: str) -> None:
        """Listen on ``path``, where the socket of a predecessor may still lie. Raises OSError."""
        if os.path.exists(path):
            os.unlink(path)
        loop = asyncio.get_running_loop()
        self._server = await loop.create_unix_server(lambda: LinkStream(self._connected), path, backlog=BACKLOG)

    async def stop(self, grace_seconds: float) -> None:
        """Listen no more, and end what has not ended by itself within ``grace_seconds``."""
        if self._server is not None:
            self._server.close()
        serving = list(self._serving)
        if serving:
            await asyncio.wait(serving, timeout=grace_seconds)
        for task in serving:
            task.cancel()
        await asyncio.gather(*serving, return_exceptions=True)

    def _connected(self, link: LinkStream) -> None:
        task = asyncio.get_running_loop().create_task(self._serve(link))
        self._serving.add(task)
        task.add_done_callback(self._serving.discard)

    async def _serve(self, link: LinkStream) -> None:
        who = "a local connection"
        try:
            opening = await accept(link, self._key_of, self._host.core.topology_id)
            who = f"task {opening.task}"
            await (self._control if opening.stream == Tag.CONTROL else self._data)(link, opening)
        except (LinkRefused, MalformedMessage) as fault:
            log.warning("%s: refused: %s", who, fault)
        except TimeoutError:
            log.warning("%s: refused: it has not said in time who it is", who)
        except OSError as fault:
            log.info("%s: %s", who, fault)
        finally:
            await link.finish()

    async def _control(self, link: LinkStream, opening: Opening) -> None:
        async with asyncio.timeout(HANDSHAKE_SECONDS):
            hello = await link.read()
        if not isinstance(hello, InstanceHello):
            raise _refused(link, "the first message of an instance is InstanceHello")
        if (hello.task, hello.incarnation) != (opening.task, opening.incarnation):
            raise _refused(link, f"the hello is of task {hello.task}, which is not who has proved itself")
        connection = self._host.connect(f"task {hello.task} (process {hello.pid})")
        self._host.handle(ConnectionOpened(connection.number, hello))
        await self._host.control(connection, link)

    async def _data(self, link: LinkStream, opening: Opening) -> None:
        number = self._host.core.instance_connection(opening.task, opening.incarnation)
        connection = self._host.without_data(number)
        if connection is None:
            raise _refused(link, "say hello on a control stream first")
        await self._host.data(connection, link)


def _refused(link: LinkStream, reason: str) -> LinkRefused:
    refuse(link, reason)
    return LinkRefused(reason)
