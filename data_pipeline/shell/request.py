"""Request of the command line, and the checks that are possible before anything is loaded or started."""

from __future__ import annotations

import contextlib
import socket
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from data_pipeline.shell.output import MANIFEST, OutputExists, Place, is_taken, local_path
from data_pipeline.shell.staged import is_owed
from heron_runtime.failures import ExistsAlready, Unavailable, UsageError

CONNECT_SECS = 5.0
FILES = 1_000  # maximum number of files in one micro-batch


@dataclass(frozen=True)
class Streaming:
    """Options of a streaming run.

    Attributes:
        checkpoint: Folder of the checkpoint.
        every_s: Seconds between micro-batches, until interrupted. None reads the existing input, then ends.
        files: Maximum number of files of each source in a micro-batch.
    """

    checkpoint: str
    every_s: float | None = None
    files: int = FILES


@dataclass(frozen=True)
class Request:
    """Request of the command line.

    Times are milliseconds since 1970 UTC. With ``views``, only views are published.
    """

    file: Path
    program: str | None = None
    arguments: tuple[str, ...] = ()
    input_paths: tuple[str, ...] = ()
    input_format: str = ""
    output_path: str = ""
    from_ms: int | None = None
    to_ms: int | None = None
    master: str = "local[*]"
    conf: dict[str, str] = field(default_factory=dict)
    replace: bool = False
    dry_run: bool = False
    views: bool = False
    config: dict[str, str] = field(default_factory=dict)  # overrides the program's own
    force: bool = False  # T may lie beyond what the online layer has seen
    streaming: Streaming | None = None  # None: one batch
    since_last: bool = False  # begin where the last batch of the views ends

    @property
    def checkpoint(self) -> str:
        """Checkpoint folder of a stream; "" for a batch."""
        return self.streaming.checkpoint if self.streaming is not None else ""


def check(request: Request) -> None:
    """Reject an unreachable master, an output path in use, and one within its stream's checkpoint or around it.

    Raises:
        UsageError: The master or a path is invalid.
        Unavailable: The master does not answer.
        ExistsAlready: The output path is in use.
    """
    _check_master(request.master)
    if request.output_path and request.checkpoint:
        _check_apart(request.output_path, request.checkpoint)
    if request.output_path and not request.dry_run:
        _check_place(request)


def _check_master(master: str) -> None:
    if not master.startswith(("local", "spark://", "yarn", "k8s://", "mesos://")):
        raise UsageError(f"invalid Spark master {master!r}", "Write local[*], spark://HOST:PORT, yarn or k8s://URL.")
    if not master.startswith("spark://"):
        return
    for place in master.removeprefix("spark://").split(","):
        parts = urlsplit(f"//{place}")
        with contextlib.suppress(OSError, ValueError):
            socket.create_connection((parts.hostname, parts.port or 7077), CONNECT_SECS).close()
            return
    raise Unavailable(f"{master} does not answer", "Is the Spark master running, and is this its address?")


def _check_apart(output: str, checkpoint: str) -> None:
    """Check that neither folder contains the other, since a result is replaced with all that is in its folder."""
    one, other = (url.rstrip("/") if (path := local_path(url)) is None else str(path) for url in (output, checkpoint))
    if f"{one}/".startswith(f"{other}/") or f"{other}/".startswith(f"{one}/"):
        raise UsageError(
            f"one of --output-path {output} and --checkpoint {checkpoint} is inside the other",
            "Choose two folders beside each other: the result is replaced as a whole.",
        )


def _check_place(request: Request) -> None:
    """Check a local output path; others are checked once there is a session."""
    local = local_path(request.output_path)
    if local is None or not is_taken(local):
        return
    if request.streaming is not None and (local / MANIFEST).is_file():
        return  # perhaps this stream's own, which is checked later
    if is_owed(Place(None, request.output_path)):
        return  # perhaps to this program, which is checked later
    if not request.replace:
        raise OutputExists(request.output_path)
    if not (local / MANIFEST).is_file():
        raise ExistsAlready(
            f"{request.output_path} holds data that is not a result of a program (no {MANIFEST}), and --replace "
            "would remove it",
            "Choose another --output-path, or remove it yourself.",
        )
