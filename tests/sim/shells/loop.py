"""An asyncio loop without a clock and without sockets: time passes when nothing else is left to do.

Theory of operation. ``asyncio.BaseEventLoop`` keeps the ready queue and the timers; what it calls a selector is asked
to wait until the next timer, and here waiting moves the clock. If there is no timer either, nothing would ever happen
again, which is a deadlock and said so. Unix sockets are pairs of ``Transport`` joined by two ``Pipe``, one each way:
bytes arrive late and in pieces of any size, in order; a pipe takes so much into its kernel's buffer and lets the writer
wait for the rest. All chance comes from one random source, so a seed fixes what happens.

Faults: ``Transport.cut`` (nothing more arrives; each end learns of it at a time of its own), ``Pipe.garble_ms`` (the
next frame has a header that no decoder takes), ``Pipe.stall`` (nothing arrives for a while).
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any, NoReturn

from heron_runtime.net.frames import HEADER, MAX_MESSAGE_BYTES

from ..simulation import Violation

OWNER: ContextVar[object] = ContextVar("OWNER")  # whose process the running code is of
KERNEL_BYTES = (2_000, 20_000, 212_992)
SLOWEST_TO_LEARN = 2.0  # seconds until an end knows that its connection is broken


class _Waiting:
    """The loop's selector: no file ever has anything to say."""

    def __init__(self, loop: VirtualLoop) -> None:
        self._loop = loop

    def select(self, timeout: float | None) -> list[Any]:
        """Let so many seconds pass."""
        if timeout is None:
            raise Violation("nothing will ever happen again")
        self._loop.now += timeout
        return []

    def close(self) -> None:
        """Nothing to close."""


class VirtualLoop(asyncio.BaseEventLoop):
    """The loop, and the servers that listen on it by path. ``broken`` is the first law that did not hold."""

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
        """Seconds since it began."""
        return self.now

    def break_law(self, law: str) -> NoReturn:
        """Raises Violation, and remembers it: asyncio keeps what tasks raise to itself."""
        violation = Violation(law)
        self.note(violation, law)
        raise violation

    def note(self, error: BaseException | None, message: str) -> None:
        """Something went wrong that nobody caught."""
        if self.broken is None:
            self.broken = error if isinstance(error, Violation) else Violation(f"{message}: {error!r}")
            self.stop()

    async def create_unix_server(self, protocol_factory: Any, path: Any = None, **_: Any) -> Any:
        """Listen."""
        server = self._servers[str(path)] = Server(self, str(path), protocol_factory)
        return server

    async def create_unix_connection(self, protocol_factory: Any, path: Any = None, **_: Any) -> Any:
        """Connect to who listens there. Raises ConnectionRefusedError."""
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
        """Who listens there is gone."""
        self._servers.pop(path, None)

    def cut_all_of(self, owner: object) -> None:
        """A process is dead: it hears nothing any more, and the other ends learn of it."""
        for near in list(self.transports):
            for end in (near, near.far):
                if end.owner is owner:
                    end.die()

    def busy(self) -> bool:
        """True while bytes are under way."""
        return any(end.out.waiting for near in self.transports for end in (near, near.far))

    def _process_events(self, event_list: Any) -> None:
        """There are none."""

    def _write_to_self(self) -> None:
        """Nobody sleeps, so nobody needs to be woken."""


class Server:
    """Listens at a path."""

    def __init__(self, loop: VirtualLoop, path: str, factory: Callable[[], Any]) -> None:
        self.owner = OWNER.get()
        self.factory = factory
        self._loop = loop
        self._path = path

    def close(self) -> None:
        """Listen no more."""
        self._loop.stop_listening(self._path)


class Pipe:
    """One direction. What is in ``kernel`` is under way; what is beyond its capacity waits at the writer."""

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
        """Bytes under way."""
        return 0 if self.over else len(self._buffer)

    def garble(self) -> None:
        """The header of the next frame makes no sense."""
        self._garble = True

    def stall(self, seconds: float) -> None:
        """Nothing arrives for so long."""
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
        """Nothing more will be written."""
        self._eof = True
        self.go()

    def drop_unsent(self) -> None:
        """The writer is gone; the kernel still delivers what it has taken."""
        del self._buffer[self._capacity :]
        self.end()

    def cut(self) -> None:
        """Nothing more arrives."""
        self.over = True
        self._buffer.clear()

    def go(self) -> None:
        """Have the next piece arrive, unless one is under way or nobody reads."""
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
        """Make a connection of two ends."""
        self.far, far.far = far, self
        self.out, far.out = Pipe(self._loop, self, far), Pipe(self._loop, far, self)

    def begin(self, protocol: Any) -> None:
        """Whose end it is."""
        self.protocol = protocol
        protocol.connection_made(self)

    def writelines(self, list_of_data: Any) -> None:
        """A frame: its header and its body."""
        if self._closed:
            return
        if self.far._closed:
            self._lose(BrokenPipeError("nobody reads"))
            return
        head, body = list_of_data
        self.out.frame(bytes(head), bytes(body))

    def write_eof(self) -> None:
        """This end is done writing."""
        self.out.end()

    def abort(self) -> None:
        """Close: the kernel delivers what it has, or the other end hears of a reset."""
        if not self._closed:
            if self._loop.rng.random() < 0.5:
                self.out.drop_unsent()
            else:
                self.out.cut()
                self.far.learn(ConnectionResetError("reset"))
            self._lose(None)

    def die(self) -> None:
        """Its process is dead: as ``abort``, but nobody here is told."""
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
        """The connection breaks; each end learns of it later."""
        for end in (self, self.far):
            end.out.cut()
            end.learn(ConnectionResetError("broken"))

    def learn(self, error: Exception) -> None:
        """This end learns of it after a while."""
        self._loop.call_later(self._loop.rng.uniform(0, SLOWEST_TO_LEARN), self._lose, error)

    def resume(self) -> None:
        """The kernel has taken what waited."""
        if not self._closed:
            self.protocol.resume_writing()

    def is_closing(self) -> bool:
        """True once closed."""
        return self._closed

    def pause_reading(self) -> None:
        """Take nothing."""
        self.reads = False

    def resume_reading(self) -> None:
        """Take again."""
        self.reads = not self._closed
        self.far.out.go()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Both are 0, for that is what links ask for."""
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
