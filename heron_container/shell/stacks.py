"""The stacks of a child's threads: SIGUSR1 makes its ``faulthandler`` write them to its log, where they are read.

That works for a process that hangs, holds the interpreter's lock or is out of memory, since faulthandler runs in the
signal handler itself; and it stays in the log for later. A process that does not catch SIGUSR1 is left alone: the
signal would end it.
"""

from __future__ import annotations

import asyncio
import re
import signal
from pathlib import Path

from heron_container.shell.children import Child
from heron_control.schedulers.identity import catches

PATIENCE_SECONDS = 1.5
POLL_SECONDS = 0.02
QUIET_POLLS = 4  # nothing was added for so many looks: the dump is complete
MAX_BYTES = 512 * 1024
_BEGIN = re.compile(r"^(Current thread|Thread) 0x[0-9a-f]+ .*\(most recent call first\):$")
_FRAME = re.compile(r'^  (File "|<no Python frame>|\.\.\.)')


class NoStacks(Exception):
    """The process gives none."""


async def dump_stacks(child: Child, log_file: Path) -> str:
    """The stacks of all threads. Raises NoStacks."""
    if not await asyncio.to_thread(catches, child.pid, signal.SIGUSR1):
        raise NoStacks("the process does not show its stacks yet, or no longer: it is starting or has ended")
    begin = await asyncio.to_thread(_size, log_file)
    child.send_signal(signal.SIGUSR1)
    found, quiet = "", 0
    deadline = asyncio.get_running_loop().time() + PATIENCE_SECONDS
    while quiet < QUIET_POLLS or not found:
        if asyncio.get_running_loop().time() > deadline:
            break
        await asyncio.sleep(POLL_SECONDS)
        now = only_stacks(await asyncio.to_thread(_added, log_file, begin))
        quiet = quiet + 1 if now == found else 0
        found = now
    if not found:
        raise NoStacks(f"the process wrote no stacks within {PATIENCE_SECONDS:g} s; it may be stopped")
    return found


def only_stacks(text: str) -> str:
    """The stacks within a piece of log; what the process wrote meanwhile is left out."""
    kept: list[str] = []
    inside = False
    for line in text.splitlines():
        if _BEGIN.match(line):
            inside = True
            kept += ["", line] if kept else [line]
        elif inside and _FRAME.match(line):
            kept.append(line)
        else:
            inside = False
    return "\n".join(kept)


def _size(file: Path) -> int:
    try:
        return file.stat().st_size
    except OSError:
        return 0


def _added(file: Path, begin: int) -> str:
    """What was appended since; from the start if the file was rotated."""
    try:
        with file.open("rb") as opened:
            size = opened.seek(0, 2)
            opened.seek(begin if size >= begin else 0)
            return opened.read(MAX_BYTES).decode(errors="replace")
    except OSError:
        return ""
