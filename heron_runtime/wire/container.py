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


AT_END = "at its end: nothing is left to read"  # the ``doing`` of a spout that has read all of a bounded source
LAST_ERROR_CHARACTERS = 4096  # tables of processes truncate longer texts


@dataclass(frozen=True, slots=True)
class ProcessStatus:
    """Status of one process.

    ``since`` is the time at which it entered its state (seconds since 1970, UTC). ``doing`` is its current long
    operation, such as "in next_tuple for 41 s". ``young_deaths`` is the number of consecutive times it has died soon
    after its start, up to its latest death. It is restarted after increasing delays (``heron_runtime.model.backoff``).
    """

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
    """Request to a ``heron_container`` for ContainerStatus."""


@dataclass(frozen=True, slots=True)
class ContainerStatus:
    """Processes of one container, ``heron_container`` itself first.

    ``trouble`` describes a problem that impedes the container although its processes run, such as a full disk.
    """

    container: int
    host: str
    incarnation: int
    processes: tuple[ProcessStatus, ...] = ()
    trouble: str = ""


@dataclass(frozen=True, slots=True)
class ListFiles:
    """Request to list a folder below the container's log folder; "" is the log folder itself."""

    path: str = ""


@dataclass(frozen=True, slots=True)
class FileInfo:
    """Entry of a FileList. ``path`` is relative to the log folder."""

    path: str
    size_bytes: int
    modified_at: float
    folder: bool = False


@dataclass(frozen=True, slots=True)
class FileList:
    """Entries of a folder, ordered by name."""

    files: tuple[FileInfo, ...] = ()


@dataclass(frozen=True, slots=True)
class ReadFile:
    """Request to read a part of a file below the log folder. A negative offset counts from the end."""

    path: str
    offset: int
    length: int


@dataclass(frozen=True, slots=True)
class FileData:
    """Part of a file that was read, its actual offset, and the size of the whole file."""

    offset: int
    data: bytes
    size_bytes: int


@dataclass(frozen=True, slots=True)
class StacksRequest:
    """Request for the stacks of a process of this container."""

    process: str


@dataclass(frozen=True, slots=True)
class Stacks:
    """Stacks of all threads of a process, most recent call first."""

    process: str
    pid: int
    text: str


@dataclass(frozen=True, slots=True)
class RestartContainer:
    """Request to the scheduler to restart one container, or all (-1)."""

    container: int = -1


@dataclass(frozen=True, slots=True)
class RestartReply:
    """Reply to RestartContainer: the containers that were restarted."""

    containers: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class SchedulerStatusRequest:
    """Request to the scheduler for SchedulerStatus."""


@dataclass(frozen=True, slots=True)
class SchedulerStatus:
    """Status of the scheduler and of the containers it started, including dead ones."""

    scheduler: ProcessStatus
    containers: tuple[ProcessStatus, ...] = ()
