"""Output of a program on Spark: lines printed in a worker, shown by the command.

A worker's stdout and stderr go to its JVM's stderr, which is Spark's log: a file of the driver if both are on one
machine. The program's output is written there line by line, each line whole and after a mark. The driver follows the
file and shows the lines that have the mark. Executors on other machines have their own logs.
"""

from __future__ import annotations

import io
import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

MARK = b"program| "
MAX_LINE = 2_000  # bytes; with the mark still an atomic write to a pipe
MAX_LINES = 10_000
LOOK_EVERY_SECS = 0.2


class Spoken(io.TextIOBase):
    """Replacement of a worker's ``sys.stdout`` that writes whole, marked lines to stderr. Long lines are split."""

    def __init__(self) -> None:
        self._rest = ""

    def write(self, text: str) -> int:
        """Write complete lines immediately; an incomplete line waits for its end."""
        *lines, self._rest = (self._rest + text).split("\n")
        for line in lines:
            data = line.encode("utf-8", "replace")
            for at in range(0, max(1, len(data)), MAX_LINE):
                os.write(sys.__stderr__.fileno() if sys.__stderr__ else 2, MARK + data[at : at + MAX_LINE] + b"\n")
        return len(text)


@contextmanager
def heard(log: Path, out: TextIO, *, from_end: bool = False) -> Iterator[None]:
    """Show on ``out`` the output of programs in the log, during the block and up to its end.

    With ``from_end``, the existing content of the log is skipped, since other jobs wrote it.
    """
    begin = log.stat().st_size if from_end else 0
    over = threading.Event()

    def listen() -> None:
        shown, rest = 0, b""
        with log.open("rb") as file:
            file.seek(begin)
            while True:
                last = over.wait(LOOK_EVERY_SECS)  # before the read, so that all lines up to the end are read
                *lines, rest = (rest + file.read()).split(b"\n")
                said = [line.removeprefix(MARK) for line in lines if line.startswith(MARK)]
                for line in said[: max(0, MAX_LINES - shown)]:
                    out.write(line.decode("utf-8", "replace") + "\n")
                if shown <= MAX_LINES < shown + len(said):
                    out.write(f"(the program prints more than {MAX_LINES} lines; --verbose shows all of them)\n")
                shown += len(said)
                if said:
                    out.flush()
                if last:
                    return

    thread = threading.Thread(target=listen, name="heard", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
