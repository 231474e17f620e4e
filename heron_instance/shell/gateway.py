"""The gateway thread: everything an instance says to its stream manager and hears from it.

One asyncio loop, two framed streams (``docs/explanation/internals.md`` section 3). One write is in flight on each; what
queues up
meanwhile goes with the next packet. Frames wait for upload credit, nothing else does. When a stream ends both are
closed and opened again with back-off; what was handed over and is not known to be taken is lost and counted, what waits
goes on the next stream. After an outage the backlog is sent before anything is read.

The executor thread calls ``post``, ``offer_credit`` and ``close``, at any time; it is woken through the inbox. To wake
the loop costs more than anything else here, so it is done once for whatever gathers until the loop gets to it.

Where the state of tasks is kept a link belongs to a generation, named in its hello. ``leave_generation`` ends the link,
forgets what waits, and goes on with one that carries no frames, so that the next plan is heard; ``join`` opens one of
the generation whose state has been loaded. When that one ends it is not opened again.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from typing import Any

from heron_instance.core.download import Download
from heron_instance.core.outbox import Flush
from heron_instance.core.outgoing import Outgoing
from heron_instance.shell.flush_timer import FlushTimer
from heron_instance.shell.inbox import (
    Inbox,
    Linked,
    MustLeave,
    PauseChanged,
    PlanArrived,
    StreamManagerSaidHello,
    Unlinked,
    Wake,
    WeightsChanged,
    WishArrived,
)
from heron_instance.shell.opening import GatewaySetup, LinkFault, Replaced, heard, open_stream, say_hello
from heron_runtime.model.checkpoints import CheckpointCommand, TaskReport
from heron_runtime.net.frames import Tag
from heron_runtime.net.handshake import LinkRefused
from heron_runtime.net.link import LinkStream
from heron_runtime.wire.control import CallDuration, Credit, Leave, Pause, PlanUpdate, TaskWeights
from heron_runtime.wire.data import Packet
from heron_runtime.wire.errors import MalformedMessage
from heron_runtime.wire.metrics import ProcessMetrics

HELLO_SECONDS = 10.0
FIRST_DELAY_SECONDS = 0.05
LAST_DELAY_SECONDS = 2.0
FAREWELL_SECONDS = 1.0
BACKLOG_SECONDS = 2.0

log = logging.getLogger(__name__)


class Gateway:
    """Owns the link. What the executor thread calls before ``run`` begins is done then."""

    def __init__(self, setup: GatewaySetup, inbox: Inbox) -> None:
        self._setup = setup
        self._inbox = inbox
        self._outgoing = Outgoing()
        self._posted: deque[Flush] = deque()
        self._woken = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._work: asyncio.Event
        self._control_work: asyncio.Event
        self._closing = False
        self.download = Download()
        self._generation = 0  # of the next link; 0: it carries no frames where the state of tasks is kept
        self._relink = asyncio.Event()
        self._leaving: Future[None] | None = None  # the last call of ``leave_generation``
        self._forget: Future[None] | None = None  # done when the link is down and what waited is forgotten
        self._ended = False  # ``run`` has returned
        self._task_report: TaskReport | None = None
        self._told_task_report: TaskReport | None = None
        self.planned_generation = 0  # of the newest plan
        self._in_call_ms = self._told_in_call_ms = 0
        self._incarnation_seen: int | None = None
        self._linked = False
        self._collect: Callable[[], ProcessMetrics]
        self._report_due = True  # the first one goes at once
        self._reported: asyncio.Event
        self._streams: tuple[tuple[str, str], ...] = ()  # of the newest plan: number to (component, stream)
        self.sent_weight = 0  # handed over or lost: the executor takes the difference out of data-out
        self.tell_sent = False  # the executor waits for room in data-out
        self.timer: FlushTimer | None = None  # once there is an executor

    # For the executor thread.

    def post(self, flushes: list[Flush]) -> None:
        """Send these."""
        self._posted.extend(flushes)
        self.wake()

    def offer_credit(self, total_weight: int, tuple_weight: int) -> None:
        """The executor will take frames of so much weight in all; a tuple weighs ``tuple_weight`` for it."""
        self.download.offer(total_weight, tuple_weight)
        self.wake()

    def tell_report(self, report: TaskReport) -> None:
        """Tell the master this, now and with each new link."""
        self._task_report = report
        self.wake()

    def leave_generation(self) -> None:
        """End the link and forget what waits to be sent; returns when nothing of it will come any more: at once where
        ``run`` has ended, for then ``MustLeave`` is in the inbox."""
        left = self._leaving = Future()
        self._call(self._leave, left)
        if not self._ended:  # else ``run`` sets the result at its end
            left.result()

    def join(self, generation: int) -> None:
        """Open a link of this generation; ``Linked`` is put into the inbox once it carries frames."""
        self._call(self._set_generation, generation)

    def close(self) -> None:
        """Send what waits; then ``run`` returns."""
        self._closing = True
        self.wake()

    def wake(self) -> None:
        """Have the loop see what there is to do."""
        if not self._woken and self._loop is not None:
            self._woken = True
            self._call(self._woke)

    def _call(self, callback: Callable[..., None], *arguments: Any) -> None:
        assert self._loop is not None, "a plan has come, so the loop runs"
        try:
            self._loop.call_soon_threadsafe(callback, *arguments)
        except RuntimeError:  # the loop is closed
            pass

    # On the loop.

    def ask_for_report(self) -> None:
        """Send what ``collect`` gives as soon as there is a link."""
        self._report_due = True
        self._reported.clear()
        self._control_work.set()

    def tell_in_call(self, milliseconds: int) -> None:
        """User code has been in one call for so long; 0: not for long."""
        if milliseconds != self._in_call_ms:
            self._in_call_ms = milliseconds
            self._control_work.set()

    def tell_taken(self) -> None:
        """Once a second: what has been taken since it was told last, so that little counts as lost with the link."""
        if self.download.tell_taken():
            self._control_work.set()

    def _set_generation(self, generation: int) -> None:
        self._generation = generation
        self._relink.set()

    def _leave(self, left: Future[None]) -> None:
        self._forget = left
        self._set_generation(0)

    def _forget_all(self) -> None:
        """The link is down: the next executor begins from nothing."""
        self._posted.clear()
        self._outgoing, self.download, self.sent_weight, self._task_report = Outgoing(), Download(), 0, None
        if self._forget is not None and not self._forget.done():
            self._forget.set_result(None)
        self._forget = None

    async def run(self, collect: Callable[[], ProcessMetrics]) -> None:
        """Keep the link until ``close``, or until told to leave. ``collect`` makes the reports that travel on it."""
        self._collect = collect
        self._work, self._control_work, self._reported = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._woke()
        try:
            await self._keep_linked()
        except Replaced as error:
            self._inbox.put(MustLeave(str(error)))
        finally:
            self._ended = True  # first: a call of ``leave_generation`` sees this, or is seen here
            if self._leaving is not None and not self._leaving.done():
                self._leaving.set_result(None)

    def _woke(self) -> None:
        self._woken = False
        while self._posted:
            self._outgoing.put(self._posted.popleft())
        if self.timer is not None:
            self.timer.look()
        self._work.set()
        self._control_work.set()

    async def _keep_linked(self) -> None:
        quiet, delay, fault = False, FIRST_DELAY_SECONDS, ""
        while not self._finished():
            level = logging.DEBUG if quiet else logging.INFO
            try:
                await self._link()
                reason = "closed"
            except (MalformedMessage, LinkRefused) as error:
                reason = str(error)
                level = logging.DEBUG if reason == fault else logging.WARNING
                fault = reason
            except (LinkFault, OSError) as error:
                reason = str(error)
            if self._finished():
                return
            if self._relink.is_set():
                self._relink.clear()
                if self._forget is not None:
                    self._forget_all()
                quiet, delay = True, FIRST_DELAY_SECONDS
                continue
            # The first failures at a start only say that the stream manager is not there yet.
            log.log(level, "no link to the stream manager (%s)", reason)
            quiet = True
            if self._closing:
                return
            delay = FIRST_DELAY_SECONDS if self._linked else delay
            self._linked = False
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(delay):
                    await self._relink.wait()
            delay = min(LAST_DELAY_SECONDS, 2 * delay)

    def _finished(self) -> bool:
        return self._closing and not self._posted and self._outgoing.empty()

    async def _link(self) -> None:
        """One connection: returns or raises when it ends."""
        setup = self._setup
        control: LinkStream | None = None
        data: LinkStream | None = None
        parts: list[asyncio.Task[Any]] = []
        generation = 0
        try:
            async with asyncio.timeout(HELLO_SECONDS):
                control = await open_stream(setup, Tag.CONTROL)
                generation = self._generation
                if self._forget is None:  # this is the link that was asked for
                    self._relink.clear()
                hello = await say_hello(setup, control, generation)
            self._outgoing.begin_stream()
            self.download.begin_stream()
            self._told_in_call_ms, self._told_task_report = 0, None
            self._inbox.put(StreamManagerSaidHello(hello.incarnation))
            if self._incarnation_seen is not None:
                log.info("linked again to stream manager %d", hello.incarnation)
                setup.count("__gateway-reconnect-count", 1)
            self._incarnation_seen = hello.incarnation
            async with asyncio.timeout(HELLO_SECONDS):
                data = await open_stream(setup, Tag.DATA)
            self._linked = True
            if generation:
                self._inbox.put(Linked(generation))
            backlog_sent = asyncio.Event()
            self._work.set()
            self._control_work.set()
            loop = asyncio.get_running_loop()
            parts = [
                loop.create_task(self._read_control(control.read)),
                loop.create_task(self._write_control(control.write)),
                loop.create_task(self._write_data(data, backlog_sent)),
                loop.create_task(self._read_data(data.read, backlog_sent)),
                loop.create_task(self._relink.wait()),
            ]
            await asyncio.wait(parts, return_when=asyncio.FIRST_COMPLETED)
            for part in parts:  # in this order: a Leave on the control stream counts more than the end of the other
                if part.done():
                    part.result()
        except TimeoutError:
            raise LinkFault("the stream manager did not answer in time") from None
        finally:
            for stream in (data, control):
                if stream is not None:
                    stream.cancel()
            for part in parts:
                part.cancel()
            await asyncio.gather(*parts, return_exceptions=True)
            counter = "__gateway-stale-generation" if generation else "__gateway-lost-on-break"
            for number, tuples in self._outgoing.end_stream().items():
                setup.count(f"{counter}/{self._stream_name(number)}", tuples)
            if generation and generation == self._generation:
                self._generation = 0  # it is not opened again
                self._inbox.put(Unlinked(generation))

    async def _read_control(self, read: Callable[[], Awaitable[Any]]) -> None:
        while True:
            message = heard(await read())
            if isinstance(message, Credit):
                self._outgoing.grant(message.limit_bytes, message.taken_bytes)
                self._work.set()
            elif isinstance(message, PlanUpdate):
                self._streams = message.plan.streams
                self.planned_generation = max(self.planned_generation, message.plan.generation.number)
                self._inbox.put(PlanArrived(message.plan))
            elif isinstance(message, CheckpointCommand):
                self._inbox.put(WishArrived(message))
            elif isinstance(message, Pause):
                if message.causes:
                    log.debug("paused: %s", "; ".join(map(str, message.causes)))
                self._inbox.put(PauseChanged(message.paused))
            elif isinstance(message, TaskWeights):
                self._inbox.put(WeightsChanged({one.task: one.bytes for one in message.tasks}))
            elif isinstance(message, Leave):
                raise Replaced(message.reason)

    async def _write_control(self, write: Callable[[Any], Awaitable[Any]]) -> None:
        """Renew the credit for frames to us; send reports, for the metrics manager."""
        while True:
            credit = self.download.news()
            if credit is not None:
                await write(credit)
                continue
            report = self._task_report
            if report is not None and report != self._told_task_report:
                self._told_task_report = report
                await write(report)
                continue
            if self._in_call_ms != self._told_in_call_ms:
                self._told_in_call_ms = self._in_call_ms
                await write(CallDuration(self._in_call_ms))
                continue
            if self._report_due:
                self._report_due = False
                await write(self._collect())
                self._reported.set()
                continue
            self._control_work.clear()
            await self._control_work.wait()

    async def _write_data(self, data: LinkStream, backlog_sent: asyncio.Event) -> None:
        setup, write = self._setup, data.write
        while True:
            taken = self._outgoing.take()
            if taken is None:
                backlog_sent.set()
                if self._finished():
                    await self._last_report()
                    # The other end answers with its own end, after it has read everything; that ends the reader.
                    await data.done_writing()
                    await asyncio.sleep(FAREWELL_SECONDS)
                    return
                self._work.clear()
                await self._work.wait()
                continue
            packet, weight = taken
            try:
                await write(packet)
            finally:
                self._room_made(weight)
            setup.count("__gateway-sent-packets-count", 1)
            setup.count("__gateway-sent-packets-size", _frame_bytes(packet))

    async def _last_report(self) -> None:
        self.ask_for_report()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(FAREWELL_SECONDS):
                await self._reported.wait()

    def _stream_name(self, number: int) -> str:
        return self._streams[number][1] if number < len(self._streams) else str(number)

    def _room_made(self, weight: int) -> None:
        self.sent_weight += weight
        if self.tell_sent and weight:
            self.tell_sent = False
            self._inbox.put(Wake())

    async def _read_data(self, read: Callable[[], Awaitable[Any]], backlog_sent: asyncio.Event) -> None:
        try:
            async with asyncio.timeout(BACKLOG_SECONDS):
                await backlog_sent.wait()
        except TimeoutError:
            pass  # without credit the backlog may wait for what we read
        expected = 1
        put, count = self._inbox.put, self._setup.count
        while True:
            packet: Packet = heard(await read())
            if packet.sequence != expected:
                count("__gateway-sequence-fault-count", 1)
                raise LinkFault(f"packet {packet.sequence} came where {expected} was due")
            expected += 1
            self.download.receive(sum([frame.weight() for frame in packet.frames]))
            put(packet)
            if self.timer is not None:
                self.timer.expect()
            count("__gateway-received-packets-count", 1)
            if packet.frames:
                count("__gateway-received-packets-size", _frame_bytes(packet))


def _frame_bytes(packet: Packet) -> int:
    return sum([frame.size_bytes() for frame in packet.frames])
