"""Real stream managers, and a small instance that speaks their protocol."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import grpc.aio
import numpy as np

from heron_control.schedulers.topology_folder import write_secrets
from heron_runtime.launch import Launch
from heron_runtime.model.checkpoints import NO_WISH, CheckpointCommand
from heron_runtime.model.ids import PROTOCOL_VERSION, root_base
from heron_runtime.model.plan import PhysicalPlan
from heron_runtime.net.frames import Tag
from heron_runtime.net.handshake import instance_key
from heron_runtime.net.identity import Identity
from heron_runtime.net.link import EOF, LinkLost, LinkStream, connect
from heron_runtime.net.rpc import MASTER_SERVICE, make_server
from heron_runtime.wire.control import Credit, InstanceHello, Leave, Pause, PlanUpdate, StreamManagerHello
from heron_runtime.wire.data import Ack, Frame, Init, Packet
from heron_runtime.wire.master import Heartbeat, HeartbeatReply, Register
from tests.support.waiting import wait_until_async

PATIENCE_SECONDS = 20.0


def make_launch(home: Path, topology_id: str, **settings: Any) -> Launch:
    """Return a launch file for a folder; the store is shared by name within this process."""
    home.mkdir(exist_ok=True)
    write_secrets(home)
    return Launch(
        "local", "me", "default", "t", topology_id, f"files://{home}/state", str(home), str(home), settings=settings
    )


class TestInstance:
    """Stub task that sends packets within its credit, keeps received frames, and returns credit on ``take``."""

    __test__ = False

    def __init__(
        self,
        launch: Launch,
        container: int,
        task: int,
        incarnation: int = 1,
        window: int = 1 << 22,
        generation: int = 0,
    ) -> None:
        self.launch = launch
        self.container = container
        self.task = task
        self.incarnation = incarnation
        self.window = window
        self.generation = generation
        self.limit = 0
        self.sent = 0
        self.sequence = 0
        self.taken = 0
        self.plan: PhysicalPlan | None = None
        self.pause: Pause | None = None
        self.wish = NO_WISH
        self.manager: StreamManagerHello | None = None
        self.left = False
        self.closed = False
        self.frames: deque[Frame] = deque()
        self.verdicts: dict[int, Any] = {}
        self.next_root = 1

    async def connect(self) -> TestInstance:
        """Open both streams and, if there is a plan, wait for it."""
        self.control = await self.open(Tag.CONTROL)
        who = self.launch.topology_id, self.task, self.incarnation, 1, self.generation
        hello = InstanceHello(PROTOCOL_VERSION, *who)
        await self.control.write(hello)
        self.manager = await self.control.read()
        credit = await self.control.read()
        assert isinstance(self.manager, StreamManagerHello)
        assert isinstance(credit, Credit)
        self.limit = credit.limit_bytes
        self.data = await self.open(Tag.DATA)
        self.tasks = [asyncio.ensure_future(self._read_control()), asyncio.ensure_future(self._read_data())]
        await self.control.write(Credit(self.window))
        return self

    async def open(self, stream: Tag) -> LinkStream:
        """Open a stream, with its handshake."""
        launch = self.launch
        path = launch.stream_manager_socket(self.container)
        key = instance_key(launch.secret(), launch.topology_id, self.container, self.task)
        return await connect(path, key, stream, launch.topology_id, self.task, self.incarnation)

    async def close(self) -> None:
        """Close both streams, as when the process dies."""
        self.control.cancel()
        self.data.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)

    async def send(self, frames: Sequence[Frame] = (), inits: Sequence[Init] = (), acks: Sequence[Ack] = ()) -> None:
        """Send a packet; wait for credit if there are frames."""
        if frames:
            await wait_until_async(lambda: self.sent < self.limit, f"credit of task {self.task}")
        self.sequence += 1
        self.sent += sum(frame.size_bytes() for frame in frames)
        await self.data.write(Packet(self.sequence, list(inits), list(acks), frames=list(frames)))

    async def take(self) -> Frame:
        """Process one frame and return its credit."""
        await wait_until_async(lambda: self.frames, f"a frame for task {self.task}")
        frame = self.frames.popleft()
        self.taken += frame.size_bytes()
        await self.control.write(Credit(self.taken + self.window, 0, self.taken))
        return frame

    def open_root(self, keys: list[int]) -> tuple[int, Init]:
        """Return the next root, and the Init that opens it."""
        root = root_base(self.task, self.incarnation) | self.next_root
        self.next_root += 1
        key = int(np.bitwise_xor.reduce(np.array(keys, np.uint64)))
        return root, Init(self.task, root, column([key]))

    async def _read_control(self) -> None:
        while (message := await _read(self.control)) is not EOF:
            match message:
                case Credit():
                    self.limit = message.limit_bytes
                case PlanUpdate():
                    self.plan = message.plan
                case Pause():
                    self.pause = message
                case CheckpointCommand():
                    self.wish = message
                case Leave():
                    self.left = True
        self.closed = True

    async def _read_data(self) -> None:
        expected = 1
        while (packet := await _read(self.data)) is not EOF:
            assert packet.sequence == expected
            expected += 1
            self.frames += packet.frames
            for verdict in packet.verdicts:
                for root in np.frombuffer(verdict.roots, "<u8").tolist():
                    assert root not in self.verdicts, "a root is settled once"
                    self.verdicts[root] = verdict.reason and verdict.reason.kind
        self.closed = True


async def _read(stream: LinkStream) -> Any:
    try:
        return await stream.read()
    except LinkLost:
        return EOF


class TestMaster:
    """Stub of a topology master that records registrations and heartbeats, and can send a plan."""

    __test__ = False

    def __init__(self, identity: Identity, epoch: int = 1) -> None:
        self.epoch = epoch
        self.plan: PhysicalPlan | None = None
        self.wish = NO_WISH
        self.registered: dict[int, Register] = {}
        self.beats: dict[int, Heartbeat] = {}
        self._streams: dict[int, grpc.aio.ServicerContext] = {}
        # A stream takes one write at a time: a plan may be sent while a heartbeat is answered.
        self._turn = asyncio.Lock()
        handler = MASTER_SERVICE.handler(StreamManager=self._talk)
        self._server, self.port = make_server(identity, "127.0.0.1:0", [handler])

    async def start(self) -> None:
        """Start the server."""
        await self._server.start()

    async def stop(self) -> None:
        """Stop the server at once."""
        await self._server.stop(0)

    async def send_plan(self, plan: PhysicalPlan, *only: int) -> None:
        """Send a plan to all connected stream managers, or only to these, and to later ones."""
        self.plan = plan
        for container, stream in list(self._streams.items()):
            if not only or container in only:
                await self._write(stream, PlanUpdate(plan, self.epoch))

    async def _write(self, stream: grpc.aio.ServicerContext, message: PlanUpdate | HeartbeatReply) -> None:
        async with self._turn:
            await stream.write(message)

    async def _talk(self, _: Any, context: grpc.aio.ServicerContext) -> None:
        container = 0
        while True:
            message = await context.read()
            if message is grpc.aio.EOF:
                return
            if isinstance(message, Register):
                container = message.stream_manager.container
                self.registered[container] = message
                self._streams[container] = context
                if self.plan is not None:
                    await self._write(context, PlanUpdate(self.plan, self.epoch))
            else:
                self.beats[container] = message
                await self._write(context, HeartbeatReply(self.epoch, wish=self.wish))


def column(values: list[int]) -> bytes:
    """Return the values as uint64 bytes."""
    return np.array(values, np.uint64).tobytes()
