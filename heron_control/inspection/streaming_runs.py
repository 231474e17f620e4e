"""Streaming runs on Spark, each with a lock and a small file in HERONRY_HOME/pipeline/runs.

Theory of operation. The driver of a run claims a name (its program's, with a number if another run has it), holds that
name's lock as long as it lives, and writes its progress after each step. A reader trusts a file only while its lock is
held. So a run that was killed disappears from all lists at once. Its file is overwritten by the next run of that name.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import signal
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from heron_control.schedulers.identity import HostLock, is_held, last_holder
from heron_runtime.failures import Failure, NotFound, listing
from heron_runtime.files import replace_file
from heron_runtime.model.ids import is_safe_name
from heron_runtime.user_home import home_of_user

RUNS = Path("pipeline", "runs")  # below HERONRY_HOME
LOOK_EVERY_SECS = 0.1
STOP_SECS = 60.0  # time for running tasks on executors to be cancelled and for Spark to end


@dataclass(frozen=True)
class StreamRun:
    """Progress of a run. ``state``: starting, waiting (for files), reading (a micro-batch), writing (a result).

    ``micro_batch`` is the number of the last one (-1: none yet), with its files, rows and seconds. ``portions``,
    ``state_rows`` and ``state_bytes`` describe the accumulated state. ``ui`` is the URL of Spark's page, if there is
    one.
    """

    name: str
    program: str
    file: str
    pid: int
    master: str
    checkpoint: str
    output: str
    every_seconds: float | None
    started: float  # seconds since 1970, as ``updated``
    updated: float
    state: str = "starting"
    micro_batch: int = -1
    files: int = 0
    rows: int = 0
    batch_seconds: float = 0.0
    portions: int = 0
    state_bytes: int = 0
    state_rows: int = 0
    ui: str = ""

    @property
    def input_rate(self) -> float:
        """Rows per second in the last micro-batch."""
        return self.rows / self.batch_seconds if self.batch_seconds else 0.0


class Claimed:
    """Claim of a run to its name, which publishes the run's progress."""

    def __init__(self, folder: Path, lock: HostLock, run: StreamRun) -> None:
        self._file, self._lock, self.run = folder / f"{run.name}.json", lock, run

    def tell(self, **changes: Any) -> None:
        """Write the file.

        Raises:
            OSError: The file cannot be written.
        """
        self.run = replace(self.run, updated=time.time(), **changes)
        replace_file(self._file, json.dumps(asdict(self.run), indent=2), 0o600)


@contextlib.contextmanager
def claimed(program: str, folder: Path | None = None, **about: Any) -> Iterator[Claimed]:
    """Claim a name for the block; ``about`` holds further fields of the StreamRun.

    Raises:
        OSError: The folder cannot be written.
    """
    folder = folder or runs_folder()
    folder.mkdir(parents=True, exist_ok=True)
    for number in itertools.count(1):
        name = program if number == 1 else f"{program}-{number}"
        lock = HostLock(folder / f"{name}.lock")
        if lock.acquire(name):
            break
    now = time.time()
    claim = Claimed(folder, lock, StreamRun(name, program, pid=os.getpid(), started=now, updated=now, **about))
    try:
        claim.tell()
        yield claim
    finally:
        (folder / f"{name}.json").unlink(missing_ok=True)
        lock.release()


def runs_folder() -> Path:
    """Return the folder of this user's runs on this machine."""
    return home_of_user() / RUNS


def living(folder: Path | None = None) -> list[StreamRun]:
    """Return the current runs by name."""
    folder = folder or runs_folder()
    runs = []
    for file in sorted(folder.glob("*.json")) if folder.is_dir() else []:
        with contextlib.suppress(OSError, ValueError, TypeError):  # it is ending, or of another version
            if is_held(file.with_suffix(".lock")):
                runs.append(StreamRun(**json.loads(file.read_bytes())))
    return runs


def stop(name: str, folder: Path | None = None) -> StreamRun:
    """Ask a run to end, wait for it, and return its last state.

    Raises:
        NotFound: No such run is active.
        Failure: The run does not end.
    """
    folder = folder or runs_folder()
    runs = {run.name: run for run in living(folder)}
    lock = folder / f"{name}.lock"
    holder = last_holder(lock) if is_safe_name(name) and name in runs else None
    if holder is None:
        raise NotFound(
            f"no streaming run {name!r} (running: {listing(sorted(runs)) if runs else 'none'})",
            "The tracker's page lists them; a batch is ended by Ctrl-C where it runs.",
        )
    with contextlib.suppress(ProcessLookupError):
        os.kill(holder.pid, signal.SIGTERM)
    until = time.monotonic() + STOP_SECS
    while is_held(lock) and last_holder(lock) == holder:
        if time.monotonic() > until:
            raise Failure(
                f"{name} has not ended within {STOP_SECS:g} seconds (process {holder.pid})",
                "Nothing is lost if it is killed: the same command continues from its checkpoint.",
            )
        time.sleep(LOOK_EVERY_SECS)
    return runs[name]
