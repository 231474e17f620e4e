"""Children of heron_container: those it execs (``python -m <room>``), and the zygotes that it forked at its birth.

Their ends are told by pidfd, so nothing polls. ``STARTED`` has all of them: another child is an orphan that came to us.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from heron_container.shell.lifeline import Lifeline
from heron_container.shell.logs import LogPipe
from heron_runtime.code_user import CodeUser

STARTED: set[int] = set()  # children of this process that it started and will reap


class Child(Protocol):
    """A process that lives, however it was made."""

    pid: int

    def send_signal(self, number: int) -> None:
        """Signal exactly this process; nothing if it has ended."""


class ExecChild:
    """A sub-process, its log pipe and its lifeline. ``ended(wait status)`` is called once, when its log is read."""

    def __init__(
        self,
        command: Sequence[str],
        environment: Mapping[str, str],
        log: LogPipe,
        ended: Callable[[int], None],
        passed: Sequence[int] = (),
        with_lifeline: bool = True,
        key: str = "",
        user: CodeUser | None = None,
    ) -> None:
        """Start it in our working folder, as ``user`` if one is given; ``--lifeline FD`` is added to the command, if
        wanted, with ``key`` in it. Raises OSError."""
        self._log = log
        self._ended = ended
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
        """Signal it; it cannot be mistaken for another, since only we reap it."""
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
        self._ended(code)


class BornChild:
    """A child that was forked before there was a loop. ``ended(exit code)`` is called once."""

    def __init__(self, pid: int, ended: Callable[[int], None]) -> None:
        self.pid = pid
        self._ended = ended
        STARTED.add(pid)
        self._pidfd = os.pidfd_open(pid)  # nobody else reaps it, so it is certainly this child's
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._pidfd, self._exited)

    def send_signal(self, number: int) -> None:
        """Signal it by its pidfd; nothing if it has ended."""
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._pidfd, number)

    def _exited(self) -> None:
        pid, status = os.waitpid(self.pid, os.WNOHANG)
        if pid:
            STARTED.discard(pid)
            self._loop.remove_reader(self._pidfd)
            os.close(self._pidfd)
            self._ended(os.waitstatus_to_exitcode(status))
