"""Server for the local instances, on the Unix socket of the container (``heron_runtime/net/link.py``)."""

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

BACKLOG = 1024  # all instances of a container may connect at the same time, with two streams each

log = logging.getLogger(__name__)


class InstanceServer:
    """Accepts streams until it is stopped. Each runs in its own asyncio task; a failure ends that stream alone.

    Args:
        driver: Driver of the core.
        key_of: Returns the key of a task of the topology.
    """

    def __init__(self, driver: CoreDriver, key_of: Callable[[int], str]) -> None:
        self._driver = driver
        self._key_of = key_of
        self._server: asyncio.AbstractServer | None = None
        self._serving: set[asyncio.Task[None]] = set()

    async def start(self, path: str) -> None:
        """Listen on ``path``. A socket left by a predecessor is removed.

        Raises:
            OSError: The socket cannot be created.
        """
        if os.path.exists(path):
            os.unlink(path)
        loop = asyncio.get_running_loop()
        self._server = await loop.create_unix_server(lambda: LinkStream(self._connected), path, backlog=BACKLOG)

    async def stop(self, grace_seconds: float) -> None:
        """Stop listening, and end the streams that have not ended within ``grace_seconds``."""
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
            opening = await accept(link, self._key_of, self._driver.core.topology_id)
            who = f"task {opening.task}"
            await (self._control if opening.stream == Tag.CONTROL else self._data)(link, opening)
        except (LinkRefused, MalformedMessage) as fault:
            log.warning("%s: refused: %s", who, fault)
        except TimeoutError:
            log.warning("%s: refused: no hello within the time limit", who)
        except OSError as fault:
            log.info("%s: %s", who, fault)
        finally:
            await link.finish()

    async def _control(self, link: LinkStream, opening: Opening) -> None:
        async with asyncio.timeout(HANDSHAKE_SECONDS):
            hello = await link.read()
        if not isinstance(hello, InstanceHello):
            raise _refused(link, "the first message of an instance must be InstanceHello")
        if (hello.task, hello.incarnation) != (opening.task, opening.incarnation):
            raise _refused(link, f"hello of task {hello.task} on a stream of task {opening.task}")
        connection = self._driver.connect(f"task {hello.task} (process {hello.pid})")
        self._driver.handle(ConnectionOpened(connection.number, hello))
        await self._driver.control(connection, link)

    async def _data(self, link: LinkStream, opening: Opening) -> None:
        number = self._driver.core.instance_connection(opening.task, opening.incarnation)
        connection = self._driver.without_data(number)
        if connection is None:
            raise _refused(link, "a hello on a control stream is required first")
        await self._driver.data(connection, link)


def _refused(link: LinkStream, reason: str) -> LinkRefused:
    refuse(link, reason)
    return LinkRefused(reason)
