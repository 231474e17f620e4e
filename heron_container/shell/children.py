"""Child processes of heron_container: executed and forked ones, the zygotes, and orphans.

A child is executed (``python -m <package>``), forked by a zygote (``heron_container.zygote``), or is a zygote that was
forked during the start. Pidfds report their ends, so nothing polls. ``STARTED`` has all children of this process
itself: any other child is an orphan that was re-parented to it.

Each child holds a lifeline. Its write end is held by heron_container alone and closed when the child has ended or must
end. A secret for the child is written into its lifeline, so that no file, command line or environment contains it and
the zygote, which only passes the descriptor on, does not learn it.

A ``ZygoteClient`` keeps its zygote alive, asks it for forks and receives the ends of its children. When a zygote dies,
the lifelines of its children are cut. Each child counts as ended only when its pidfd says so, because a slot may be
reused only after the end of the old process. Then a new zygote is started, at once or after a delay if it keeps dying
young. A zygote that fails ``MAX_FAILURES`` times in a row before it is ready is abandoned: its processes are executed
from then on.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import signal
import socket
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from heron_container.core.supervisor import ProcessSpec
from heron_container.shell.logs import LogPipe
from heron_container.zygote import MAX_MESSAGE_BYTES
from heron_runtime.code_user import CodeUser
from heron_runtime.linux import become_subreaper
from heron_runtime.model.backoff import Backoff, BackoffPolicy
from heron_runtime.orphans import end_orphans

STARTED: set[int] = set()  # children of this process that it started and will reap
MAX_FAILURES = 3
log = logging.getLogger(__name__)
AGAIN_SECONDS = 0.02
PATIENCE_SECONDS = 5.0


class Lifeline:
    """Pipe whose read end, with ``secret`` in it, the child gets. Our death or ``cut`` causes end of file."""

    def __init__(self, secret: str = "") -> None:
        self.read_end, self._write_end = os.pipe()
        os.write(self._write_end, secret.encode())

    def close_read_end(self) -> None:
        """Close our copy of the read end, once the child has its own."""
        if self.read_end >= 0:
            os.close(self.read_end)
            self.read_end = -1

    def cut(self) -> None:
        """Make the child exit at once, if it still lives. Idempotent."""
        self.close_read_end()
        if self._write_end >= 0:
            os.close(self._write_end)
            self._write_end = -1


class Child(Protocol):
    """Living process, executed or forked."""

    pid: int

    def send_signal(self, number: int) -> None:
        """Signal exactly this process. Does nothing if it has ended."""


class ExecChild:
    """Executed child with its log pipe and lifeline.

    Calls ``on_exit(wait status)`` once, after its log has been read.
    """

    def __init__(
        self,
        command: Sequence[str],
        environment: Mapping[str, str],
        log: LogPipe,
        on_exit: Callable[[int], None],
        passed: Sequence[int] = (),
        with_lifeline: bool = True,
        key: str = "",
        user: CodeUser | None = None,
    ) -> None:
        """Start the child in our working folder.

        Args:
            command: Program and arguments; ``--lifeline FD`` is appended if ``with_lifeline`` is set.
            environment: Environment of the child.
            log: Pipe for stdout and stderr.
            on_exit: Receives the wait status.
            passed: Descriptors to inherit.
            with_lifeline: Give the child a lifeline.
            key: Secret to write into the lifeline.
            user: User of the child, by default that of this process.

        Raises:
            OSError: The child cannot be started.
        """
        self._log = log
        self._on_exit = on_exit
        self._lifeline = Lifeline(key)
        if with_lifeline:
            command = [*command, "--lifeline", str(self._lifeline.read_end)]
            passed = [self._lifeline.read_end, *passed]
        try:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log.write_end,
                stderr=log.write_end,
                env=dict(environment),
                pass_fds=passed,
                user=user.uid if user is not None else None,
                group=user.gid if user is not None else None,
                extra_groups=user.groups if user is not None else None,
            )
        except OSError:
            self._lifeline.cut()
            log.drain_and_close()
            raise
        self._lifeline.close_read_end()
        log.close_write_end()
        self.pid = self._process.pid
        STARTED.add(self.pid)
        self._pidfd = os.pidfd_open(self.pid)
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._pidfd, self._exited)

    def send_signal(self, number: int) -> None:
        """Signal the child. Only this process reaps it, so its pid cannot belong to another."""
        self._process.send_signal(number)

    def _exited(self) -> None:
        code = self._process.poll()
        if code is None:
            return
        STARTED.discard(self.pid)
        self._loop.remove_reader(self._pidfd)
        os.close(self._pidfd)
        self._lifeline.cut()
        self._log.drain_and_close()
        self._on_exit(code)


class ZygoteChild:
    """Zygote that was forked before the event loop existed. Calls ``on_exit(exit code)`` once."""

    def __init__(self, pid: int, on_exit: Callable[[int], None]) -> None:
        self.pid = pid
        self._on_exit = on_exit
        STARTED.add(pid)
        self._pidfd = os.pidfd_open(pid)  # only this process reaps it, so it is certainly this child's
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._pidfd, self._exited)

    def send_signal(self, number: int) -> None:
        """Signal the zygote by its pidfd. Does nothing if it has ended."""
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._pidfd, number)

    def _exited(self) -> None:
        pid, status = os.waitpid(self.pid, os.WNOHANG)
        if pid:
            STARTED.discard(pid)
            self._loop.remove_reader(self._pidfd)
            os.close(self._pidfd)
            self._on_exit(os.waitstatus_to_exitcode(status))


@dataclass
class ForkedProcess:
    """Process requested from a zygote; ``pid`` is 0 until it exists."""

    slot: int
    log: LogPipe
    lifeline: Lifeline
    pid: int = 0
    pidfd: int = -1

    def send_signal(self, number: int) -> None:
        """Signal the process by its pidfd."""
        if self.pidfd >= 0:
            try:
                signal.pidfd_send_signal(self.pidfd, number)
            except ProcessLookupError:
                pass  # it has ended


@dataclass
class ZygoteClient:
    """Client of a zygote, which forks processes.

    Calls ``on_started(slot, child)``, ``on_exit(slot, exit code or None, error)`` and ``on_abandoned()``. ``spawn``
    takes a call-back for the zygote's end and returns the zygote and our end of its socket.
    """

    spawn: Callable[[Callable[[str], None]], tuple[Child, socket.socket]]
    title: Callable[[ProcessSpec], str]
    key: Callable[[ProcessSpec], str]
    container: int
    policy: BackoffPolicy
    on_started: Callable[[int, ForkedProcess], None]
    on_exit: Callable[[int, int | None, str], None]
    on_abandoned: Callable[[], None]
    _children: dict[int, ForkedProcess] = field(default_factory=dict)
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
        """Start the zygote now; otherwise the first ``fork`` starts it."""
        self._retry = None
        try:
            self._process, ours = self.spawn(self._zygote_ended)
        except OSError as error:
            log.error("cannot start the zygote: %s", error)
            self._schedule_restart()
            return
        ours.setblocking(False)
        self._socket, self._started = ours, self._loop.time()
        self._loop.add_reader(ours, self._readable)

    def fork(self, spec: ProcessSpec, environment: Mapping[str, str], log_pipe: LogPipe) -> None:
        """Request a process, now or as soon as the zygote is ready. ``on_started`` or ``on_exit`` follows."""
        if self._closing:
            log_pipe.drain_and_close()
            self.on_exit(spec.slot, None, "not started: the container stops")
        elif self._ready:
            self._request(spec, environment, log_pipe)
        else:
            self._waiting.append((spec, environment, log_pipe))
            if self._process is None and self._retry is None:
                self.start()

    def take_waiting(self) -> list[tuple[ProcessSpec, LogPipe]]:
        """Remove and return the requests not sent yet. The caller takes over responsibility for them."""
        waiting, self._waiting = self._waiting, []
        return [(spec, pipe) for spec, _, pipe in waiting]

    def close(self) -> None:
        """Refuse further forks. The zygote ends at end of file, after its children."""
        self._closing = True
        if self._retry is not None:
            self._retry.cancel()
        for spec, pipe in self.take_waiting():
            pipe.drain_and_close()
            self.on_exit(spec.slot, None, "not started: the container stops")
        if not self._children:
            self._disconnect()

    def kill(self) -> None:
        """Kill a zygote that does not end."""
        if self._process is not None:
            self._process.send_signal(signal.SIGKILL)

    @property
    def has_ended(self) -> bool:
        """True if the zygote process does not exist."""
        return self._process is None

    def _request(self, spec: ProcessSpec, environment: Mapping[str, str], log_pipe: LogPipe) -> None:
        assert self._socket is not None
        forked = ForkedProcess(spec.slot, log_pipe, Lifeline(self.key(spec)))
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
        except BlockingIOError:  # hundreds of requests at once: the socket is full, nothing was sent
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
            self._handle_message(json.loads(data), descriptors)

    def _handle_message(self, message: dict[str, Any], descriptors: list[int]) -> None:
        if "ready" in message:
            self._ready, self._failures = True, 0
            self._send_waiting()
        elif "forked" in message:
            forked = self._children[message["forked"]]
            forked.pid, forked.pidfd = message["pid"], descriptors[0]
            self.on_started(forked.slot, forked)
        elif "failed" in message:
            self._finish(self._children[message["failed"]], None, message["error"])
        elif "exited" in message:
            forked = self._children[message["exited"]]
            self._finish(forked, os.waitstatus_to_exitcode(message["status"]), "")

    def _zygote_ended(self, reason: str) -> None:
        """Cut the lifelines of all children, wait for their ends and start a new zygote."""
        was_ready = self._ready
        self._process = None
        self._disconnect()
        if not self._closing:
            log.error("the zygote has ended (%s); its %d processes end with it", reason, len(self._children))
        for forked in list(self._children.values()):
            forked.lifeline.cut()
            if forked.pidfd < 0:
                # Never reported: it was not forked, or exited at its start (it checks its parent first).
                self._finish(forked, None, "not started: the zygote has ended")
            else:
                self._loop.add_reader(forked.pidfd, self._finish, forked, None, "its zygote has ended")
        if self._closing:
            return
        self._failures = 0 if was_ready else self._failures + 1
        if self._failures >= MAX_FAILURES:
            log.error("the zygote failed to start %d times; its processes are executed from now on", self._failures)
            self.on_abandoned()
        else:
            self._schedule_restart()

    def _schedule_restart(self) -> None:
        lived_ms = int((self._loop.time() - self._started) * 1000)
        self._retry = self._loop.call_later(self._backoff.died(lived_ms) / 1000, self.start)

    def _finish(self, forked: ForkedProcess, code: int | None, error: str) -> None:
        self._forget(forked)
        forked.log.drain_and_close()
        self.on_exit(forked.slot, code, error)
        if self._closing and not self._children:
            self._disconnect()

    def _forget(self, forked: ForkedProcess) -> None:
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


class OrphanReaper:
    """Kills orphans that instances left behind and no zygote has adopted.

    These are orphans of executed instances and of those whose zygote has died. Children that this process did not start
    are such orphans. Not so in container 0: it does not run user code, and it may be the parent of a scheduler whose
    containers would be re-parented to it.
    """

    def __init__(self, wanted: bool) -> None:
        self._wanted = wanted
        self._loop = asyncio.get_running_loop()
        self._due: asyncio.Handle | None = None
        if wanted:
            become_subreaper()

    def schedule(self) -> None:
        """Look for orphans soon, because a child has ended. Calls in quick succession are combined."""
        if self._wanted and self._due is None:
            self._due = self._loop.call_soon(self._look)

    async def drain(self) -> None:
        """Wait until no orphan is left, after all started processes have ended."""
        deadline = self._loop.time() + PATIENCE_SECONDS
        while self._wanted and end_orphans(STARTED):
            if self._loop.time() > deadline:
                log.error("orphans of user code do not end; they may hang in the kernel")
                return
            await asyncio.sleep(AGAIN_SECONDS)

    def _look(self) -> None:
        self._due = None
        if orphans := end_orphans(STARTED):
            log.warning("killing %d orphans of user code", orphans)
            self._due = self._loop.call_later(AGAIN_SECONDS, self._look)
