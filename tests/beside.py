"""A group of tests that runs beside others, at a lower priority: the simulator, which computes, while others wait.

What it prints is kept until it is joined. Whatever ends the run before (Ctrl-C, SIGTERM) ends it, too.
"""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from types import FrameType

NICE = 5
PATIENCE_SECONDS = 10.0


class Beside:
    """``command``, from now on, until ``join`` or ``end``."""

    def __init__(self, command: Sequence[str], folder: Path) -> None:
        self._output = tempfile.TemporaryFile()  # noqa: SIM115  # open as long as the group runs
        self._began = self._ended = time.monotonic()
        self._process = subprocess.Popen(
            ["nice", "-n", str(NICE), *command], cwd=folder, stdin=subprocess.DEVNULL, stdout=self._output,
            stderr=subprocess.STDOUT, start_new_session=True,
        )  # fmt: skip
        self._before = signal.signal(signal.SIGTERM, self._on_sigterm)
        self._waiter = threading.Thread(target=self._wait, daemon=True)
        self._waiter.start()

    def join(self) -> tuple[bool, float, str]:
        """Wait for it: whether it passed, the minutes it took, and what it has printed."""
        self._waiter.join()
        code, minutes = self._process.returncode, (self._ended - self._began) / 60
        self._output.seek(0)
        text = self._output.read().decode(errors="replace")
        self._close()
        return code == 0, minutes, text

    def _wait(self) -> None:
        """On a thread, since nobody else may look when it ends."""
        self._process.wait()
        self._ended = time.monotonic()

    def end(self) -> None:
        """End it and all that it has started, if it still runs."""
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGTERM)
            try:
                self._process.wait(PATIENCE_SECONDS)
            except subprocess.TimeoutExpired:
                os.killpg(self._process.pid, signal.SIGKILL)
                self._process.wait()
        self._close()

    def _close(self) -> None:
        signal.signal(signal.SIGTERM, self._before)
        self._output.close()

    def _on_sigterm(self, number: int, frame: FrameType | None) -> None:
        self.end()
        raise SystemExit(128 + number)
