"""Setup shared by all processes of a topology: arguments, title, logging, heartbeat, lifeline, signals.

A process is started as ``python -m <package> --launch FILE --container N --slot K --lifeline FD``. The *lifeline* is
the read end of a pipe whose write end only the parent holds. End of file means that the parent has ended. The process
then exits at once, so that ``kill -9`` of a parent does not leave orphans. Logs go to stderr, which the parent owns and
writes to files.

*Heartbeats* lie in shared memory: one small file for each process of a container, mapped by that process. A process
writes an increasing number once a second, and `heron_container` reads the files at each tick. This requires
neither messages nor wake-ups, and continues while sockets are stuck. A beat also carries the *phase* of the process, so
that the container can tell "works" from "exists", and a short text for users about a long operation. Beat and phase are
one aligned 64-bit store each, so a lock is not needed. A text that changes while it is read may be mixed once.

If user code has a user of its own, that user may write only to the files of instances. The container creates a new file
each time it starts a process. It reads the file without mapping it, since truncating a mapped file kills the process
that maps it. Invalid contents count as a missing heartbeat.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import faulthandler
import logging
import mmap
import os
import shutil
import signal
import struct
import sys
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from typing import Any, Protocol, TypeVar

import setproctitle

from heron_runtime.launch import Launch
from heron_runtime.linux import set_hidden
from heron_runtime.model.settings import Keys, setting
from heron_runtime.net.handshake import KEY_BYTES
from heron_runtime.process_stats import LoopLag

SLOT_BYTES = 256
_BEAT = struct.Struct("=QQ")
_LENGTH = struct.Struct("=B")
_DOING = _BEAT.size + _LENGTH.size  # offset of the text
DOING_BYTES = SLOT_BYTES - _DOING


class ProcessPhase(IntEnum):
    """Phase of a process, as it reports it."""

    NONE = 0
    STARTING = 1
    RUNNING = 2


_PHASES = frozenset(ProcessPhase)


class HeartbeatReader:
    """Container's side of the heartbeats: creates and reads the files in ``folder``, which it owns."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._open: dict[int, int] = {}  # slot to descriptor
        shutil.rmtree(folder, ignore_errors=True)  # left by an earlier process of this container
        folder.mkdir(mode=0o700)

    def make(self, slot: int) -> Path:
        """Create the file for a new process of this slot, in place of the previous file. Raises OSError."""
        self._let_go(slot)
        path = self.folder / str(slot)
        path.unlink(missing_ok=True)
        self._open[slot] = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        os.ftruncate(self._open[slot], SLOT_BYTES)
        return path

    def read(self, slot: int) -> tuple[int, ProcessPhase]:
        """Return beat number and phase of a slot, or 0 and NONE if its file is missing or too short."""
        data = self._read(slot)
        if len(data) < SLOT_BYTES:
            return 0, ProcessPhase.NONE
        beat, phase = _BEAT.unpack_from(data)
        return beat, ProcessPhase(phase) if phase in _PHASES else ProcessPhase.NONE

    def doing(self, slot: int) -> str:
        """Return the long operation that the process of this slot is in, or ""."""
        data = self._read(slot)
        if len(data) < SLOT_BYTES:
            return ""
        (length,) = _LENGTH.unpack_from(data, _BEAT.size)
        return data[_DOING : _DOING + length].decode(errors="ignore")

    def close(self) -> None:
        """Remove the folder."""
        for slot in list(self._open):
            self._let_go(slot)
        shutil.rmtree(self.folder, ignore_errors=True)

    def _read(self, slot: int) -> bytes:
        descriptor = self._open.get(slot)
        return b"" if descriptor is None else os.pread(descriptor, SLOT_BYTES, 0)

    def _let_go(self, slot: int) -> None:
        descriptor = self._open.pop(slot, None)
        if descriptor is not None:
            os.close(descriptor)


class HeartbeatWriter:
    """Heartbeat file of this process. The constructor raises OSError if the file is missing."""

    def __init__(self, path: Path) -> None:
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        try:
            self._map = mmap.mmap(descriptor, SLOT_BYTES)
        finally:
            os.close(descriptor)
        self._number = 0

    def beat(self, phase: ProcessPhase, doing: str = "") -> None:
        """Write a heartbeat with the phase of this process and the long operation that it is in, if any."""
        self._number += 1
        words = doing.encode()[:DOING_BYTES]
        _LENGTH.pack_into(self._map, _BEAT.size, len(words))
        self._map[_DOING : _DOING + len(words)] = words
        _BEAT.pack_into(self._map, 0, self._number, phase)


EXIT_PARENT_GONE = 120
EXIT_REPLACED = 121
EXIT_OTHER_SETTINGS = 122  # exit code of an instance; the next one starts with the settings of the plan

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class ProcessArguments:
    """Arguments common to all processes. ``slot`` and ``lifeline`` are -1 if the process does not have one."""

    launch: Launch
    launch_file: Path
    container: int
    slot: int = -1
    lifeline: int = -1


def parse_arguments(
    kind: str, parser: argparse.ArgumentParser | None = None
) -> tuple[ProcessArguments, argparse.Namespace]:
    """Parse the command line of a process.

    Args:
        kind: Name of the process's package.
        parser: Parser with further arguments of this kind of process.

    Returns:
        The common arguments, and all parsed options.
    """
    parser = parser or argparse.ArgumentParser(prog=f"python -m {kind}")
    parser.add_argument("--launch", required=True, type=Path, help="the topology's launch.json")
    parser.add_argument("--container", type=int, default=0, help="number of the container")
    parser.add_argument("--slot", type=int, default=-1, help="heartbeat slot")
    parser.add_argument("--lifeline", type=int, default=-1, help="file descriptor that ends with the parent")
    options = parser.parse_args()
    launch = Launch.load(options.launch)
    return ProcessArguments(launch, options.launch, options.container, options.slot, options.lifeline), options


class OneLine(logging.Formatter):
    """Log formatter that indents further lines of a record, so that untrusted text cannot forge log lines."""

    def format(self, record: logging.LogRecord) -> str:
        """Format the record. Further lines of its text and the lines of a traceback are indented."""
        text = record.getMessage().replace("\r", "\\r").replace("\n", "\n    ")
        line = f"{self.formatTime(record)} {record.levelname:<7} {record.name}: {text}"
        if record.exc_info:
            line += "\n    " + self.formatException(record.exc_info).replace("\n", "\n    ")
        return line


def set_up_process(title: str, level: str = "INFO", *, hidden: bool = True) -> None:
    """Set the title for ``ps``, log to stderr, and print tracebacks on fatal signals and on SIGUSR1.

    Args:
        title: Title of the process.
        level: Lowest level of the records that are logged.
        hidden: Hide this process's memory from other processes of its user (``heron_runtime.linux.set_hidden``).
    """
    set_hidden(hidden)
    setproctitle.setproctitle(title)
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(OneLine())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level)
    faulthandler.enable()
    faulthandler.register(signal.SIGUSR1, all_threads=True)


def also_log_to(descriptor: int) -> None:
    """Also log to this descriptor; call it after `set_up_process`."""
    handler = logging.StreamHandler(os.fdopen(descriptor, "w", buffering=1))
    handler.setFormatter(OneLine())
    logging.getLogger().addHandler(handler)


def set_scheduling(policy: str) -> None:
    """Apply `heron.process.scheduling` to this process, if the kernel allows it.

    Under `batch` a process that wakes up does not preempt another. On a free core it still runs at once. On a busy core
    it waits until the running process sleeps or its time slice ends. Meanwhile its input accumulates, and a few large
    packets cost much less than many small ones.
    """
    if policy == "batch" and hasattr(os, "SCHED_BATCH"):  # Linux
        with contextlib.suppress(OSError):  # forbidden in some sandboxes
            os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))


def take_key(lifeline: int) -> str:
    """Read the key of this task, which the parent has written to the lifeline.

    Call this before anything else reads from the lifeline.

    Raises:
        RuntimeError: The lifeline does not contain a key.
    """
    key = os.read(lifeline, KEY_BYTES) if lifeline >= 0 else b""
    if len(key) != KEY_BYTES:
        raise RuntimeError("an instance is started by heron_container, which gives it its key on the lifeline")
    return key.decode()


def watch_lifeline(lifeline: int, loop: asyncio.AbstractEventLoop) -> None:
    """Exit this process at once when its parent has ended."""
    if lifeline < 0:
        return
    os.set_blocking(lifeline, False)

    def readable() -> None:
        try:
            gone = os.read(lifeline, 1) == b""
        except BlockingIOError:
            return
        if gone:
            os._exit(EXIT_PARENT_GONE)

    loop.add_reader(lifeline, readable)


async def beat_forever(
    arguments: ProcessArguments,
    phase: Callable[[], ProcessPhase],
    lag: LoopLag | None = None,
    doing: Callable[[], str] = str,
) -> None:
    """Write the heartbeat at each interval. A process without a slot does not write heartbeats.

    Args:
        arguments: Arguments of the process.
        phase: Returns the current phase.
        lag: Measures how late the heartbeats are. Without heartbeats it is started with a timer of its own.
        doing: Returns the long operation that the process is in, or "".
    """
    if arguments.slot < 0:
        if lag is not None:
            lag.start()
        return
    lag = lag or LoopLag()
    beat = HeartbeatWriter(arguments.launch.heartbeat_file(arguments.container, arguments.slot))
    interval = setting(arguments.launch.settings, Keys.HERON_HEARTBEAT_INTERVAL_MS) / 1000
    last = None
    while True:
        now = phase()
        beat.beat(now, doing())
        # A change of phase is reported sooner, since `submit --wait` waits for it.
        pause = interval if now is ProcessPhase.RUNNING and now is last else min(interval, 0.05)
        lag.expect(pause)
        await asyncio.sleep(pause)
        lag.came()
        last = now


def stop_on_signals(loop: asyncio.AbstractEventLoop, stop: Callable[[], None]) -> None:
    """Call ``stop`` on SIGTERM and SIGINT."""
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop)


class ServiceProcess(Protocol):
    """Service of a process. `start` may fail half way; `stop` is idempotent and ends what was started."""

    @property
    def stopped(self) -> asyncio.Event:
        """Set when the process should end."""

    @property
    def phase(self) -> ProcessPhase:
        """Phase that the heartbeat reports."""

    async def start(self) -> None:
        """Start the service. Return when it is ready."""

    async def stop(self) -> None:
        """Stop the service."""


async def run_until_stopped(service: ServiceProcess, arguments: ProcessArguments) -> None:
    """Run the service until it stops itself or a signal stops it. Errors of its ``start`` are raised."""
    loop = asyncio.get_running_loop()
    watch_lifeline(arguments.lifeline, loop)
    stop_on_signals(loop, service.stopped.set)
    beat = loop.create_task(beat_forever(arguments, lambda: service.phase), name="heartbeat")
    try:
        await service.start()
        await service.stopped.wait()
    finally:
        await service.stop()
        beat.cancel()


T = TypeVar("T")


def run_loop(main: Coroutine[Any, Any, T]) -> T:
    """Run `main` on a uvloop event loop, which costs a fifth less per message, and return its result.

    Like `asyncio.run`, but on any thread.

    Raises:
        Exception: Any exception that `main` raises.
    """
    import uvloop  # here, since most processes that import this module run no loop

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(main)
