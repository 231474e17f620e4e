"""Logs of the children: heron_container owns the read end of each child's stdout and stderr.

Two parts, so that neither a slow nor a full disk ever blocks a child. A ``LogPipe`` reads on the event loop what a
child has written, at most ``READ_BYTES`` at a time, keeps the last lines for ``Status`` and hands the bytes to the
``LogWriter``. That is a thread with a bounded queue that writes and rotates the files. If the queue is full or the disk
rejects a write, lines are dropped and counted. The log reports how many as soon as it can be written.

Memory, whatever children print: ``QUEUE_BYTES`` in the queue, including the overhead of each chunk (a child may write
single bytes), some chunks in transit, and ``LINES_BYTES`` for each process. ``memory_bound`` is this formula; kernel
pipes (64 KiB each) come on top.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections import deque
from pathlib import Path

from heron_control.schedulers.log_files import RotatingFile

READ_BYTES = 64 * 1024
QUEUE_BYTES = 8 * 1024 * 1024
LAST_LINES = 50
LINE_BYTES = 2000
CHUNK_BYTES = 128  # overhead of a chunk in the queue
LINES_BYTES = (LAST_LINES + 1) * (LINE_BYTES + 64) + 1024


def memory_bound(processes: int, queue_bytes: int = QUEUE_BYTES) -> int:
    """Return the most bytes that the output of this many processes can occupy here."""
    return queue_bytes + 4 * READ_BYTES + processes * LINES_BYTES


class LogWriter:
    """Thread that writes all log files of the container. ``put`` is called on the event loop."""

    def __init__(self, folder: Path, maximum_bytes: int, files: int, queue_bytes: int = QUEUE_BYTES) -> None:
        self._folder = folder
        self._maximum_bytes = maximum_bytes
        self._old_files = files
        self._queue_bytes = queue_bytes
        self._files: dict[str, RotatingFile] = {}
        self._queue: deque[tuple[str, bytes]] = deque()
        self._queued = 0
        self._dropped: dict[str, int] = {}  # lines since the last notice in that log
        self.dropped_lines = 0  # total
        self._changed = threading.Condition()
        self._closing = False
        self._thread = threading.Thread(target=self._run, name="log-writer", daemon=True)
        self._thread.start()

    def put(self, name: str, data: bytes) -> None:
        """Queue the data for writing, or count its lines as dropped."""
        with self._changed:
            if self._queued + len(data) + CHUNK_BYTES > self._queue_bytes:
                self._drop(name, data)
                return
            self._queue.append((name, data))
            self._queued += len(data) + CHUNK_BYTES
            self._changed.notify()

    def close(self, timeout_seconds: float = 5.0) -> None:
        """Write what is queued and end the thread."""
        with self._changed:
            self._closing = True
            self._changed.notify()
        self._thread.join(timeout_seconds)

    def _drop(self, name: str, data: bytes) -> None:
        lines = max(1, data.count(b"\n"))
        self._dropped[name] = self._dropped.get(name, 0) + lines
        self.dropped_lines += lines

    def _run(self) -> None:
        while True:
            with self._changed:
                while not self._queue and not self._closing:
                    self._changed.wait()
                if not self._queue:
                    break
                name, data = self._queue.popleft()
                self._queued -= len(data) + CHUNK_BYTES
                dropped = self._dropped.pop(name, 0)
            self._write(name, data, dropped)
        for file in self._files.values():
            file.close()

    def _write(self, name: str, data: bytes, dropped: int) -> None:
        file = self._files.get(name)
        if file is None:
            file = RotatingFile(self._folder / f"{name}.log", self._maximum_bytes, self._old_files)
            self._files[name] = file
        if dropped:
            data = b"heron_container: %d log lines were dropped here (disk full or slow)\n" % dropped + data
        if not file.write(data):
            with self._changed:
                self._drop(name, data)
                if dropped:  # they were counted in the total already
                    self._dropped[name] += dropped - 1
                    self.dropped_lines -= 1


class LastLines:
    """Last lines that a process wrote, kept over its restarts."""

    def __init__(self) -> None:
        self._lines: deque[bytes] = deque(maxlen=LAST_LINES)
        self._rest = b""

    def add(self, data: bytes) -> None:
        """Add a chunk of output."""
        *lines, rest = (self._rest + data).rsplit(b"\n", LAST_LINES + 1)
        if len(lines) > LAST_LINES:
            lines = lines[1:]  # drop what precedes the last fifty
        self._lines.extend(line[:LINE_BYTES] for line in lines)
        self._rest = rest[:LINE_BYTES]

    def lines(self) -> tuple[str, ...]:
        """Return the lines, oldest first."""
        lines = [*self._lines, self._rest] if self._rest else list(self._lines)
        return tuple(line.decode(errors="replace") for line in lines)

    def last(self) -> str:
        """Return the last line that is not empty, or ""."""
        return next((line.strip() for line in reversed(self.lines()) if line.strip()), "")


class LogPipe:
    """Read end of one child's output."""

    def __init__(self, name: str, last_lines: LastLines, writer: LogWriter) -> None:
        self._name = name
        self._last_lines = last_lines
        self._writer = writer
        self._read_end, self.write_end = os.pipe()
        os.set_blocking(self._read_end, False)
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._read_end, self._readable)

    def close_write_end(self) -> None:
        """Close our copy of the write end, once the child has its own."""
        if self.write_end >= 0:
            os.close(self.write_end)
            self.write_end = -1

    def drain_and_close(self) -> None:
        """Read what the ended child left. Its own children, if any, get SIGPIPE from now on."""
        self.close_write_end()
        if self._read_end < 0:
            return
        for _ in range(64):  # a pipe holds far less, but another process may still write into it
            if not self._readable():
                break
        self._close()

    def _readable(self) -> bool:
        try:
            data = os.read(self._read_end, READ_BYTES)
        except BlockingIOError:
            return False
        except OSError:
            data = b""
        if not data:
            self._close()
            return False
        self._last_lines.add(data)
        self._writer.put(self._name, data)
        return True

    def _close(self) -> None:
        if self._read_end >= 0:
            self._loop.remove_reader(self._read_end)
            os.close(self._read_end)
            self._read_end = -1
