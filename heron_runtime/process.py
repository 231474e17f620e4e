"""What every process of a topology does in the same way: arguments, title, logging, heartbeat, lifeline, signals.

A process is started as ``python -m <room> --launch FILE --container N --slot K --lifeline FD``. The *lifeline* is the
read end of a pipe whose write end only the parent holds: end of file means the parent is gone, and the process exits
at once, so ``kill -9`` of a parent leaves no orphan. Logs go to stderr, which the parent owns and writes to files.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import faulthandler
import logging
import os
import signal
import sys
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeVar

import setproctitle

from heron_runtime.launch import Launch
from heron_runtime.linux import set_hidden
from heron_runtime.liveness import HeartbeatWriter, ProcessPhase
from heron_runtime.model.settings import Keys, setting
from heron_runtime.net.handshake import KEY_BYTES
from heron_runtime.process_stats import LoopLag

EXIT_PARENT_GONE = 120
EXIT_REPLACED = 121
EXIT_OTHER_SETTINGS = 122  # of an instance: the next one begins with those of the plan

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class ProcessArguments:
    """The arguments every process has. ``slot`` and ``lifeline`` are -1 where there is none."""

    launch: Launch
    launch_file: Path
    container: int
    slot: int = -1
    lifeline: int = -1


def parse_arguments(
    kind: str, parser: argparse.ArgumentParser | None = None
) -> tuple[ProcessArguments, argparse.Namespace]:
    """Read the command line of a process of this kind (the room's name)."""
    parser = parser or argparse.ArgumentParser(prog=f"python -m {kind}")
    parser.add_argument("--launch", required=True, type=Path, help="the topology's launch.json")
    parser.add_argument("--container", type=int, default=0, help="number of the container")
    parser.add_argument("--slot", type=int, default=-1, help="heartbeat slot")
    parser.add_argument("--lifeline", type=int, default=-1, help="file descriptor that ends with the parent")
    options = parser.parse_args()
    launch = Launch.load(options.launch)
    return ProcessArguments(launch, options.launch, options.container, options.slot, options.lifeline), options


class OneLine(logging.Formatter):
    """One line per record: control characters of untrusted text are escaped (no forged log lines)."""

    def format(self, record: logging.LogRecord) -> str:
        """The record as one line; a traceback follows on lines of its own, indented."""
        text = record.getMessage().replace("\r", "\\r").replace("\n", "\n    ")
        line = f"{self.formatTime(record)} {record.levelname:<7} {record.name}: {text}"
        if record.exc_info:
            line += "\n    " + self.formatException(record.exc_info).replace("\n", "\n    ")
        return line


def set_up_process(title: str, level: str = "INFO", *, hidden: bool = True) -> None:
    """Title for ``ps``, logging to stderr, tracebacks on fatal signals and on SIGUSR1.

    ``hidden``: other processes of this user cannot look into it (``heron_runtime.linux.set_hidden``).
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
    """Log to this descriptor, too; after ``set_up_process``."""
    handler = logging.StreamHandler(os.fdopen(descriptor, "w", buffering=1))
    handler.setFormatter(OneLine())
    logging.getLogger().addHandler(handler)


def set_scheduling(policy: str) -> None:
    """Let the kernel schedule this process by ``heron.process.scheduling``; where it cannot be set nothing happens.

    Under ``batch`` a wake-up preempts nobody: on a free core the process runs at once as ever, on busy ones it waits
    until the running process sleeps or its slice ends. Meanwhile its input gathers, and a few large packets cost much
    less than many small ones.
    """
    if policy == "batch" and hasattr(os, "SCHED_BATCH"):  # Linux
        with contextlib.suppress(OSError):  # forbidden in some sandboxes
            os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))


def take_key(lifeline: int) -> str:
    """The key of this task, which our parent has put into the lifeline; before anybody else reads there.

    Raises RuntimeError where it is not.
    """
    key = os.read(lifeline, KEY_BYTES) if lifeline >= 0 else b""
    if len(key) != KEY_BYTES:
        raise RuntimeError("an instance is started by heron_container, which gives it its key on the lifeline")
    return key.decode()


def watch_lifeline(lifeline: int, loop: asyncio.AbstractEventLoop) -> None:
    """Exit at once when the parent is gone."""
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
    """Write the heartbeat each interval; a process without a slot does nothing. ``lag`` is told how late the beats
    come; without beats it gets a timer of its own. ``doing`` is what to say of the process besides its phase."""
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
        # A change of phase is told sooner, since `submit --wait` waits for it.
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
    """What a process serves. ``start`` may fail half way; ``stop`` is idempotent and ends what there is."""

    @property
    def stopped(self) -> asyncio.Event:
        """Set when the process should end."""

    @property
    def phase(self) -> ProcessPhase:
        """For the heartbeat."""

    async def start(self) -> None:
        """Begin; returns when it serves."""

    async def stop(self) -> None:
        """End."""


async def run_until_stopped(service: ServiceProcess, arguments: ProcessArguments) -> None:
    """Serve until the service is stopped, by itself or by a signal. Raises what its ``start`` raises."""
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
        Exception: `main` raised it.
    """
    import uvloop  # here, since most processes that import this module run no loop

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(main)
