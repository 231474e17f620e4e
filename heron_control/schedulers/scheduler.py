"""Scheduler protocol: the operations that a scheduler offers to the command line and to the API server.

When a scheduler receives a topology, its definition, packing plan and execution state are already in the state store.
Its folder holds ``launch.json``, the secret and, where the containers share the disk, the user's package. A scheduler
never writes these.

A scheduler that watches its containers itself has one more method, ``async def run(self) -> None``. It reconciles the
running containers with the packing plans until it is cancelled. The API server runs it. ``local`` does not have this
method, since it starts a process that watches the containers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, runtime_checkable

from heron_control.progress import Progress, silent
from heron_control.schedulers.topology_folder import Homes
from heron_runtime.failures import Unavailable
from heron_runtime.launch import Launch
from heron_runtime.state.store import StateStore
from heron_runtime.wire.container import SchedulerStatus

ALL = -1  # used in place of a container number


class SchedulerError(Unavailable):
    """The scheduler could not carry out a request. The text names the cause and the remedy."""


class Scheduler(Protocol):
    """Starts, restarts and ends the containers of one topology."""

    def prepare(self, launch: Launch, folder: Path, package: Path) -> Launch:
        """Create everything that must exist before ``start``, and return the launch for the topology's processes.

        Args:
            launch: The launch of the submission.
            folder: The staged folder, which is moved to its final path later.
            package: The user's code: a tar.gz or, from the command line, a folder, which may be moved.

        Everything that this creates is removed by ``remove``.

        Raises:
            SchedulerError: The scheduler cannot prepare the topology.
            PackageError: The package is invalid.
            OSError: A file cannot be written.
        """

    def place_checkpoint(self, launch: Launch, folder: Path) -> None:
        """Copy the checkpoint that a topology starts with to where its processes look for it.

        Called after ``prepare``. The checkpoint is in ``folder``/checkpoints, complete and verified. It may be moved
        from there.

        Raises:
            SchedulerError: The checkpoint cannot be copied.
            InvalidTopology: The checkpoint needs more space than there is.
            OSError: A file cannot be read or written.
        """

    def start(self, launch: Launch, launch_file: Path) -> int:
        """Initiate the start of all containers, and return at once.

        Idempotent: running containers are left alone.

        Returns:
            The id of the process that watches the containers, or 0 if it is not a process of this host.

        Raises:
            SchedulerError: The start cannot be initiated.
        """

    def restart(self, launch: Launch, container: int, timeout_seconds: float) -> tuple[int, ...]:
        """Stop and start one container, or all (``ALL``).

        Returns:
            The numbers of the restarted containers.

        Raises:
            SchedulerError: The restart fails.
        """

    def kill(self, launch: Launch, progress: Progress = silent, *, untold: bool = False) -> None:
        """Return when all processes of the topology have ended.

        The killed state is already in the store, where the topology's processes see it, unless they are ``untold``.

        Raises:
            SchedulerError: A process does not end in time.
        """

    def hold(self, launch: Launch) -> None:
        """Keep the logs until ``remove``. Called before the topology is killed, if its logs are wanted.

        Raises:
            NotAllowed: The scheduler cannot keep logs.
        """

    def save_logs(self, launch: Launch, folder: Path) -> None:
        """Copy the logs into ``folder``, the topology's folder, unless they are there. Called after ``kill``.

        Raises:
            SchedulerError: The logs cannot be copied. Nothing has been removed, so the kill may be repeated with or
                without
                the logs.
        """

    def remove(self, launch: Launch) -> None:
        """Remove everything that the other methods created outside the topology's folder. Idempotent.

        Raises:
            SchedulerError: Something cannot be removed.
        """

    def status(self, launch: Launch) -> SchedulerStatus | None:
        """Return the status of the containers, or None if a ``heron_scheduler`` process reports it.

        Raises:
            SchedulerError: The status cannot be read.
        """


@runtime_checkable
class WatchingScheduler(Protocol):
    """A scheduler that watches its containers itself."""

    async def run(self) -> None:
        """Reconcile until cancelled."""


@dataclass(frozen=True, slots=True)
class SchedulerContext:
    """Context that an API server passes to the scheduler that it creates.

    ``store`` is opened before the first call of the scheduler. ``environment`` holds the API server's environment
    variables, from which the scheduler reads its options. ``homes`` locates the folders of topologies. A topology's own
    credential for the store, if it needs one, is in its folder.
    """

    cluster: str
    store: StateStore
    environment: Mapping[str, str]
    homes: Homes


class SchedulerFactory(Protocol):
    """Factory that the option ``--scheduler`` of an API server names (entry point group ``heronry.schedulers``)."""

    def __call__(self, context: SchedulerContext, /) -> Scheduler:
        """Return the scheduler of the API server.

        Raises:
            SchedulerError: The options are invalid.
        """
