"""How a link to the stream manager begins: the proof of who one is, then the hellos."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from heron_runtime.launch import Launch
from heron_runtime.model.ids import PROTOCOL_VERSION
from heron_runtime.net.frames import Tag
from heron_runtime.net.link import EOF, LinkStream, connect
from heron_runtime.wire.control import InstanceHello, Leave, StreamManagerHello


class Replaced(Exception):
    """The stream manager has told this process to leave."""


class LinkFault(Exception):
    """The link is of no use; a new one must be opened."""


@dataclass(frozen=True)
class GatewaySetup:
    """Whose link it is, and who counts."""

    launch: Launch
    container: int
    task: int
    incarnation: int
    count: Callable[[str, float], None]
    key: str = field(repr=False)  # by which stream manager and task know each other


async def open_stream(setup: GatewaySetup, stream: Tag) -> LinkStream:
    """One of the two streams, proved. Raises OSError, LinkRefused, MalformedMessage."""
    launch = setup.launch
    path = launch.stream_manager_socket(setup.container)
    return await connect(path, setup.key, stream, launch.topology_id, setup.task, setup.incarnation)


async def say_hello(setup: GatewaySetup, control: LinkStream, generation: int) -> StreamManagerHello:
    """Ours, then the stream manager's. Raises Replaced, LinkFault, OSError."""
    topology_id = setup.launch.topology_id
    await control.write(
        InstanceHello(PROTOCOL_VERSION, topology_id, setup.task, setup.incarnation, os.getpid(), generation)
    )
    hello = await control.read()
    if isinstance(hello, Leave):
        raise Replaced(hello.reason)
    if not isinstance(hello, StreamManagerHello):
        raise LinkFault("the stream manager did not answer with a hello")
    if hello.protocol != PROTOCOL_VERSION:
        raise LinkFault(f"the stream manager speaks protocol {hello.protocol}, this instance {PROTOCOL_VERSION}")
    return hello


def heard(message: Any) -> Any:
    """What a stream's read gave, if it is a message. Raises LinkFault."""
    if message is EOF:
        raise LinkFault("the stream manager has closed the link")
    return message
