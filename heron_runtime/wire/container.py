"""Requests to `heron_container` (processes, logs) and to `heron_scheduler` (containers)."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class ProcessState(StrEnum):
    """State of a supervised process. RUNNING means that it works, not only that it exists."""

    STARTING = "starting"
    RUNNING = "running"
    RESTARTING = "restarting"
    STOPPED = "stopped"
    DEAD = "dead"


AT_END = "at its end: nothing is left to read"  # what a spout that has read all of a bounded source is ``doing``
LAST_ERROR_CHARACTERS = 4096  # tables of processes truncate longer texts


@dataclass(frozen=True, slots=True)
class ProcessStatus:
    """One process. ``since`` is when it entered its state (seconds since 1970, UTC). ``doing``: what it has been at for
    long, as "in next_tuple for 41 s". ``young_deaths``: how often in a row it has died soon after its start, up to its
    latest death; it is restarted after growing delays (``heron_runtime.model.backoff``)."""

    kind: str
    name: str
    container: int
    component: str
    task: int
    pid: int
    state: ProcessState
    since: float
    restarts: int = 0
    last_error: str = ""
    last_lines: tuple[str, ...] = ()
    doing: str = ""
    young_deaths: int = 0


@dataclass(frozen=True, slots=True)
class ContainerStatusRequest:
    """Ask a ``heron_container`` for ContainerStatus."""


@dataclass(frozen=True, slots=True)
class ContainerStatus:
    """The processes of one container, ``heron_container`` itself first. ``trouble``: what holds it up although they
    run, a full disk for one."""

    container: int
    host: str
    incarnation: int
    processes: tuple[ProcessStatus, ...] = ()
    trouble: str = ""


@dataclass(frozen=True, slots=True)
class ListFiles:
    """List a folder below the container's log folder; "" is the folder itself."""

    path: str = ""


@dataclass(frozen=True, slots=True)
class FileInfo:
    """One entry; ``path`` is relative to the log folder."""

    path: str
    size_bytes: int
    modified_at: float
    folder: bool = False


@dataclass(frozen=True, slots=True)
class FileList:
    """The entries of a folder, by name."""

    files: tuple[FileInfo, ...] = ()


@dataclass(frozen=True, slots=True)
class ReadFile:
    """Read a part of a file below the log folder; a negative offset counts from the end."""

    path: str
    offset: int
    length: int


@dataclass(frozen=True, slots=True)
class FileData:
    """The part that was read, where it really began, and the size of the whole file."""

    offset: int
    data: bytes
    size_bytes: int


@dataclass(frozen=True, slots=True)
class StacksRequest:
    """Ask for the stacks of a process of this container, by its name."""

    process: str


@dataclass(frozen=True, slots=True)
class Stacks:
    """The stack of every thread of a process, most recent call first."""

    process: str
    pid: int
    text: str


@dataclass(frozen=True, slots=True)
class RestartContainer:
    """Ask the scheduler to stop and start one container, or all (-1)."""

    container: int = -1


@dataclass(frozen=True, slots=True)
class RestartReply:
    """Which containers were restarted."""

    containers: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class SchedulerStatusRequest:
    """Ask the scheduler for SchedulerStatus."""


@dataclass(frozen=True, slots=True)
class SchedulerStatus:
    """The scheduler itself and the containers it started, dead ones included."""

    scheduler: ProcessStatus
    containers: tuple[ProcessStatus, ...] = ()
