"""heron_container's side of a zygote (``heron_container.zygote``).

Keeps it alive, from the one that was forked at the container's birth, asks it for forks and learns of the ends of its
children. When a zygote dies, the lifelines of its children are cut; each counts as ended only when its pidfd says so,
since a new process may take a slot only when the old one is gone for certain. Then a new zygote is started, at once or
after a delay if it keeps dying young. A zygote that cannot even get ready (``MAX_FAILURES`` times in a row) is given
up: what it would have forked is exec'ed from then on.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from heron_container.core.processes import ProcessSpec
from heron_container.shell.children import Child
from heron_container.shell.lifeline import Lifeline
from heron_container.shell.logs import LogPipe
from heron_container.zygote import MAX_MESSAGE_BYTES
from heron_runtime.model.backoff import Backoff, BackoffPolicy

MAX_FAILURES = 3
log = logging.getLogger(__name__)


@dataclass
class Forked:
    """A process that the zygote was asked for; ``pid`` is 0 until it is there."""

    slot: int
    log: LogPipe
    lifeline: Lifeline
    pid: int = 0
    pidfd: int = -1

    def send_signal(self, number: int) -> None:
        """Signal it by its pidfd."""
        if self.pidfd >= 0:
            try:
                signal.pidfd_send_signal(self.pidfd, number)
            except ProcessLookupError:
                pass  # it has ended


@dataclass
class ZygoteClient:
    """Forks processes. Callbacks: ``born(slot, child)``, ``ended(slot, exit code or None, error)``, ``given_up()``."""

    spawn: Callable[
        [Callable[[str], None]], tuple[Child, socket.socket]
    ]  # (ended) → the zygote and our end of its socket
    title: Callable[[ProcessSpec], str]
    key: Callable[[ProcessSpec], str]
    container: int
    policy: BackoffPolicy
    born: Callable[[int, Forked], None]
    ended: Callable[[int, int | None, str], None]
    given_up: Callable[[], None]
    _children: dict[int, Forked] = field(default_factory=dict)
    _waiting: list[tuple[ProcessSpec, Mapping[str, str], LogPipe]] = field(default_factory=list)
    _process: Child | None = None
    _socket: socket.socket | None = None
    _ready: bool = False
    _closing: bool = False
    _failures: int = 0
    _started: float = 0.0
    _retry: asyncio.TimerHandle | None = None

    def __post_init__(self) -> None:
        self._backoff = Backoff(self.policy)
        self._loop = asyncio.get_running_loop()

    def start(self) -> None:
        """Have a zygote from now on; else there is one from the first ``fork`` on."""
        self._retry = None
        try:
            self._process, ours = self.spawn(self._zygote_ended)
        except OSError as error:
            log.error("cannot start the zygote: %s", error)
            self._again()
            return
        ours.setblocking(False)
        self._socket, self._started = ours, self._loop.time()
        self._loop.add_reader(ours, self._readable)

    def fork(self, spec: ProcessSpec, environment: Mapping[str, str], log_pipe: LogPipe) -> None:
        """Ask for a process, now or as soon as the zygote is ready. ``born`` or ``ended`` follows."""
        if self._closing:
            log_pipe.drain_and_close()
            self.ended(spec.slot, None, "not started: the container stops")
        elif self._ready:
            self._request(spec, environment, log_pipe)
        else:
            self._waiting.append((spec, environment, log_pipe))
            if self._process is None and self._retry is None:
                self.start()

    def take_waiting(self) -> list[tuple[ProcessSpec, LogPipe]]:
        """Hand back what the zygote was never asked for; the caller answers for it."""
        waiting, self._waiting = self._waiting, []
        return [(spec, pipe) for spec, _, pipe in waiting]

    def close(self) -> None:
        """No more forks; the zygote ends by end of file. Its children are the caller's affair."""
        self._closing = True
        if self._retry is not None:
            self._retry.cancel()
        for spec, pipe in self.take_waiting():
            pipe.drain_and_close()
            self.ended(spec.slot, None, "not started: the container stops")
        if not self._children:
            self._disconnect()

    def kill(self) -> None:
        """End a zygote that does not end by itself."""
        if self._process is not None:
            self._process.send_signal(signal.SIGKILL)

    @property
    def gone(self) -> bool:
        """True when there is no zygote process."""
        return self._process is None

    def _request(self, spec: ProcessSpec, environment: Mapping[str, str], log_pipe: LogPipe) -> None:
        assert self._socket is not None
        forked = Forked(spec.slot, log_pipe, Lifeline(self.key(spec)))
        self._children[spec.slot] = forked
        message = {
            "slot": spec.slot, "kind": spec.kind, "container": self.container, "component": spec.component,
            "task": spec.task, "title": self.title(spec), "environment": dict(environment),
        }  # fmt: skip
        data = json.dumps({"fork": message}).encode()
        try:
            if len(data) > MAX_MESSAGE_BYTES:
                raise OSError(f"the environment of {spec.name} has {len(data)} bytes; at most {MAX_MESSAGE_BYTES} fit")
            socket.send_fds(self._socket, [data], [log_pipe.write_end, forked.lifeline.read_end])
        except BlockingIOError:  # hundreds at once: the socket is full for a moment; nothing was sent
            self._forget(forked)
            self._waiting.append((spec, environment, log_pipe))
            self._loop.call_later(0.01, self._send_waiting)
        except OSError as error:
            self._finish(forked, None, f"not started: {error}")
        else:
            forked.log.close_write_end()
            forked.lifeline.close_read_end()

    def _send_waiting(self) -> None:
        if self._ready and not self._closing:
            waiting, self._waiting = self._waiting, []
            for spec, environment, pipe in waiting:
                self._request(spec, environment, pipe)

    def _readable(self) -> None:
        assert self._socket is not None
        while self._socket is not None:
            try:
                data, descriptors, _, _ = socket.recv_fds(self._socket, MAX_MESSAGE_BYTES, 1)
            except BlockingIOError:
                return
            except OSError:
                data, descriptors = b"", []
            if not data:
                self._disconnect()  # the end of the process follows by pidfd
                return
            self._heard(json.loads(data), descriptors)

    def _heard(self, message: dict[str, Any], descriptors: list[int]) -> None:
        if "ready" in message:
            self._ready, self._failures = True, 0
            self._send_waiting()
        elif "forked" in message:
            forked = self._children[message["forked"]]
            forked.pid, forked.pidfd = message["pid"], descriptors[0]
            self.born(forked.slot, forked)
        elif "failed" in message:
            self._finish(self._children[message["failed"]], None, message["error"])
        elif "exited" in message:
            forked = self._children[message["exited"]]
            self._finish(forked, os.waitstatus_to_exitcode(message["status"]), "")

    def _zygote_ended(self, reason: str) -> None:
        """Its process is gone: cut the lifelines, wait for the end of every child, start again."""
        was_ready = self._ready
        self._process = None
        self._disconnect()
        if not self._closing:
            log.error("the zygote has ended (%s); its %d processes end with it", reason, len(self._children))
        for forked in list(self._children.values()):
            forked.lifeline.cut()
            if forked.pidfd < 0:
                # Never reported: it was not forked, or died at its birth (it looks at its parent first).
                self._finish(forked, None, "not started: the zygote has ended")
            else:
                self._loop.add_reader(forked.pidfd, self._finish, forked, None, "its zygote has ended")
        if self._closing:
            return
        self._failures = 0 if was_ready else self._failures + 1
        if self._failures >= MAX_FAILURES:
            log.error("the zygote could not start %d times; its processes are exec'ed from now on", self._failures)
            self.given_up()
        else:
            self._again()

    def _again(self) -> None:
        lived_ms = int((self._loop.time() - self._started) * 1000)
        self._retry = self._loop.call_later(self._backoff.died(lived_ms) / 1000, self.start)

    def _finish(self, forked: Forked, code: int | None, error: str) -> None:
        self._forget(forked)
        forked.log.drain_and_close()
        self.ended(forked.slot, code, error)
        if self._closing and not self._children:
            self._disconnect()

    def _forget(self, forked: Forked) -> None:
        self._children.pop(forked.slot, None)
        forked.lifeline.cut()
        if forked.pidfd >= 0:
            self._loop.remove_reader(forked.pidfd)
            os.close(forked.pidfd)
            forked.pidfd = -1

    def _disconnect(self) -> None:
        self._ready = False
        if self._socket is not None:
            self._loop.remove_reader(self._socket)
            self._socket.close()
            self._socket = None
