"""Children that heron_container execs itself: ``python -m <room>``. Their ends are told by pidfd, so nothing polls."""

from __future__ import annotations

import asyncio
import os
import subprocess
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from heron_container.shell.lifeline import Lifeline
from heron_container.shell.logs import LogPipe


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
        folder: str,
        log: LogPipe,
        ended: Callable[[int], None],
        passed: Sequence[int] = (),
        with_lifeline: bool = True,
    ) -> None:
        """Start it; ``--lifeline FD`` is added to the command, if wanted. Raises OSError."""
        self._log = log
        self._ended = ended
        self._lifeline = Lifeline()
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
                cwd=folder,
                pass_fds=passed,
            )
        except OSError:
            self._lifeline.cut()
            log.drain_and_close()
            raise
        self._lifeline.close_read_end()
        log.close_write_end()
        self.pid = self._process.pid
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
        self._loop.remove_reader(self._pidfd)
        os.close(self._pidfd)
        self._lifeline.cut()
        self._log.drain_and_close()
        self._ended(code)
