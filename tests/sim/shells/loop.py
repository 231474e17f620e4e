"""An asyncio loop without a clock and sockets: time passes when nothing else is left to do.

Theory of operation. ``asyncio.BaseEventLoop`` keeps the ready queue and the timers. It asks its selector to wait until
the next timer, and here waiting advances the clock. Without a timer, nothing would ever happen again: the loop reports
a deadlock. Unix sockets are pairs of ``Transport`` joined by two ``Pipe``, one in each direction: bytes arrive late and
in pieces of any size, in order; a pipe has a kernel buffer of limited size, beyond which the writer waits. All
randomness comes from one source, so a seed determines the run.

Faults: ``Transport.cut`` (nothing more arrives; each end learns of it at its own time), ``Pipe.garble_ms`` (the next
frame has an invalid header), ``Pipe.stall`` (nothing arrives for a while).
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any, NoReturn

from heron_runtime.net.frames import HEADER, MAX_MESSAGE_BYTES

from ..simulation import Violation

OWNER: ContextVar[object] = ContextVar("OWNER")  # process that owns the running code
KERNEL_BYTES = (2_000, 20_000, 212_992)
SLOWEST_TO_LEARN = 2.0  # seconds until an end knows that its connection is broken


class _Waiting:
    """Selector of the loop, in which no file is ever ready."""

    def __init__(self, loop: VirtualLoop) -> None:
        self._loop = loop

    def select(self, timeout: float | None) -> list[Any]:
        """Advance the clock by this many seconds."""
        if timeout is None:
            raise Violation("nothing will ever happen again")
        self._loop.now += timeout
        return []

    def close(self) -> None:
        """Do nothing."""


class VirtualLoop(asyncio.BaseEventLoop):
    """Loop with simulated time, and servers that listen by path. ``broken`` is the first broken invariant."""

    def __init__(self, rng: random.Random) -> None:
        super().__init__()
        self.now = 0.0
        self.rng = rng
        self.slowest = 0.003  # seconds
        self.broken: Violation | None = None
        self.transports: dict[Transport, None] = {}  # of callers
        self.pieces = 0
        self._selector = _Waiting(self)
        self._servers: dict[str, Server] = {}
        self.set_exception_handler(lambda _, context: self.note(context.get("exception"), context["message"]))

    def time(self) -> float:
        """Return the seconds since the start."""
        return self.now

    def break_law(self, law: str) -> NoReturn:
        """Raise Violation and store it, since asyncio does not propagate exceptions of tasks."""
        violation = Violation(law)
        self.note(violation, law)
        raise violation

    def note(self, error: BaseException | None, message: str) -> None:
        """Record an error that was not caught."""
        if self.broken is None:
            self.broken = error if isinstance(error, Violation) else Violation(f"{message}: {error!r}")
            self.stop()

    async def create_unix_server(self, protocol_factory: Any, path: Any = None, **_: Any) -> Any:
        """Listen at a path."""
        server = self._servers[str(path)] = Server(self, str(path), protocol_factory)
        return server

    async def create_unix_connection(self, protocol_factory: Any, path: Any = None, **_: Any) -> Any:
        """Connect to the server at a path. Raises ConnectionRefusedError."""
        await asyncio.sleep(self.rng.uniform(0, self.slowest))
        server = self._servers.get(str(path))
        if server is None:
            raise ConnectionRefusedError(f"nobody listens at {path}")
        near, far = Transport(self, OWNER.get()), Transport(self, server.owner)
        near.join(far)
        self.transports[near] = None
        far.begin(server.factory())
        near.begin(client := protocol_factory())
        return near, client

    def stop_listening(self, path: str) -> None:
        """Remove the server at a path."""
        self._servers.pop(path, None)

    def cut_all_of(self, owner: object) -> None:
        """Cut all connections of a dead process; the other ends learn of it."""
        for near in list(self.transports):
            for end in (near, near.far):
                if end.owner is owner:
                    end.die()

    def busy(self) -> bool:
        """Return True while bytes are in flight."""
        return any(end.out.waiting for near in self.transports for end in (near, near.far))

    def _process_events(self, event_list: Any) -> None:
        """Do nothing, since files are never ready."""

    def _write_to_self(self) -> None:
        """Do nothing: the loop never sleeps."""


class Server:
    """Server that listens at a path."""

    def __init__(self, loop: VirtualLoop, path: str, factory: Callable[[], Any]) -> None:
        self.owner = OWNER.get()
        self.factory = factory
        self._loop = loop
        self._path = path

    def close(self) -> None:
        """Stop listening."""
        self._loop.stop_listening(self._path)


class Pipe:
    """One direction of a connection. ``kernel`` holds bytes in flight; excess bytes wait at the writer."""

    def __init__(self, loop: VirtualLoop, source: Transport, target: Transport) -> None:
        self._loop = loop
        self._source = source
        self._target = target
        self._buffer = bytearray()
        self._capacity = loop.rng.choice(KERNEL_BYTES)
        self._eof = False
        self._paused = False  # the writer waits
        self._timer: asyncio.TimerHandle | None = None
        self._stalled_until = 0.0
        self._garble = False
        self.over = False

    @property
    def waiting(self) -> int:
        """Return the bytes in flight."""
        return 0 if self.over else len(self._buffer)

    def garble(self) -> None:
        """Corrupt the header of the next frame."""
        self._garble = True

    def stall(self, seconds: float) -> None:
        """Delay all data for this many seconds."""
        self._stalled_until = self._loop.now + seconds

    def frame(self, head: bytes, body: bytes) -> None:
        """Write a frame."""
        if self._garble and not self.over:
            self._garble = False
            head = self._loop.rng.choice((HEADER.pack(len(body), 99), HEADER.pack(MAX_MESSAGE_BYTES + 1, head[4])))
        self._buffer += head + body
        if len(self._buffer) > self._capacity and not self._paused:
            self._paused = True
            self._source.protocol.pause_writing()
        self.go()

    def end(self) -> None:
        """Mark the end of the data."""
        self._eof = True
        self.go()

    def drop_unsent(self) -> None:
        """Drop the data of a dead writer that the kernel has not accepted."""
        del self._buffer[self._capacity :]
        self.end()

    def cut(self) -> None:
        """Drop all data; nothing more arrives."""
        self.over = True
        self._buffer.clear()

    def go(self) -> None:
        """Schedule the next piece, unless one is in flight or the reader is paused."""
        if self._timer is None and not self.over and self._target.reads and (self._buffer or self._eof):
            when = max(self._stalled_until, self._loop.now + self._loop.rng.uniform(0, self._loop.slowest))
            self._timer = self._loop.call_at(when, self._arrive)

    def _arrive(self) -> None:
        self._timer = None
        if self.over or not self._target.reads:
            return
        if self._buffer:
            space = self._target.protocol.get_buffer(-1)
            most = self._loop.rng.choice((3, 100, 5_000, len(self._buffer)))
            count = min(len(space), len(self._buffer), most)
            space[:count] = self._buffer[:count]
            del self._buffer[:count]
            self._loop.pieces += 1
            self._target.protocol.buffer_updated(count)
            if self._paused and len(self._buffer) <= self._capacity:
                self._paused = False
                self._source.resume()
        elif self._eof:
            self.over = True
            self._target.protocol.eof_received()
        self.go()


class Transport(asyncio.Transport):
    """One end of a connection."""

    def __init__(self, loop: VirtualLoop, owner: object) -> None:
        super().__init__()
        self.owner = owner
        self.reads = True
        self.protocol: Any
        self.far: Transport
        self.out: Pipe
        self._loop = loop
        self._closed = False

    def join(self, far: Transport) -> None:
        """Connect two ends."""
        self.far, far.far = far, self
        self.out, far.out = Pipe(self._loop, self, far), Pipe(self._loop, far, self)

    def begin(self, protocol: Any) -> None:
        """Attach the protocol of this end."""
        self.protocol = protocol
        protocol.connection_made(self)

    def writelines(self, list_of_data: Any) -> None:
        """Write a frame: its header and its body."""
        if self._closed:
            return
        if self.far._closed:
            self._lose(BrokenPipeError("nobody reads"))
            return
        head, body = list_of_data
        self.out.frame(bytes(head), bytes(body))

    def write_eof(self) -> None:
        """End writing on this side."""
        self.out.end()

    def abort(self) -> None:
        """Close: the kernel delivers its data, or the other end gets a reset."""
        if not self._closed:
            if self._loop.rng.random() < 0.5:
                self.out.drop_unsent()
            else:
                self.out.cut()
                self.far.learn(ConnectionResetError("reset"))
            self._lose(None)

    def die(self) -> None:
        """Close as ``abort`` for a dead process, without notifying its protocol."""
        if not self._closed:
            self._closed, self.reads = True, False
            self.far.out.cut()
            if self._loop.rng.random() < 0.5:
                self.out.drop_unsent()
            else:
                self.out.cut()
                self.far.learn(ConnectionResetError("reset"))
            self._forget()

    def cut(self) -> None:
        """Break the connection; each end learns of it later."""
        for end in (self, self.far):
            end.out.cut()
            end.learn(ConnectionResetError("broken"))

    def learn(self, error: Exception) -> None:
        """Notify this end after a while."""
        self._loop.call_later(self._loop.rng.uniform(0, SLOWEST_TO_LEARN), self._lose, error)

    def resume(self) -> None:
        """Continue after the kernel has accepted the waiting data."""
        if not self._closed:
            self.protocol.resume_writing()

    def is_closing(self) -> bool:
        """Return True once closed."""
        return self._closed

    def pause_reading(self) -> None:
        """Stop reading."""
        self.reads = False

    def resume_reading(self) -> None:
        """Continue reading."""
        self.reads = not self._closed
        self.far.out.go()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Check that the limit is 0, as links request."""
        assert high == 0

    def _lose(self, error: Exception | None) -> None:
        if not self._closed:
            self._closed, self.reads = True, False
            self.far.out.cut()
            self._loop.call_soon(self.protocol.connection_lost, error)
            self._forget()

    def _forget(self) -> None:
        if self.far._closed:
            self._loop.transports.pop(self, None)
            self._loop.transports.pop(self.far, None)
