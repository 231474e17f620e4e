"""What a scheduler offers to the command line and to the api server, whatever runs the containers underneath.

A scheduler gets a topology whose definition, packing plan and execution state already stand in the state store, and
whose folder holds ``launch.json``, the secret and, where the containers share the disk, the user's package. It never
writes those.

A scheduler that watches its containers itself (``local`` does not: it starts a process that does) has one method more,
``async def run(self) -> None``: it reconciles what runs with the packing plans until it is cancelled. The api server
runs it.
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

ALL = -1  # in place of the number of a container


class SchedulerError(Unavailable):
    """The scheduler could not do what was asked; the text names the cause and the cure."""


class Scheduler(Protocol):
    """Starts, restarts and ends the containers of one topology."""

    def prepare(self, launch: Launch, folder: Path, package: Path) -> Launch:
        """Make ready what must be there before ``start``; returns the launch as the topology's processes shall see it.

        ``folder`` will be the topology's folder (it gets its final name later). ``package`` is its code: a tar.gz or,
        from the command line, a folder, which may be moved.
        Whatever this makes, ``remove`` removes. Raises SchedulerError, PackageError, OSError.
        """

    def bring(self, launch: Launch, folder: Path) -> None:
        """After ``prepare``, for a topology that begins with a checkpoint: that lies in ``folder``/checkpoints, whole
        and checked, and is brought to where the topology's processes will look for it. It may go from ``folder``.

        Raises SchedulerError, InvalidTopology for more than there is room for, OSError.
        """

    def start(self, launch: Launch, launch_file: Path) -> int:
        """See to it that all containers get started; returns at once. Raises SchedulerError.

        Idempotent: what runs already is left alone. Returns the process id of what watches the containers, or 0 where
        that is not a process of this host.
        """

    def restart(self, launch: Launch, container: int, timeout_seconds: float) -> tuple[int, ...]:
        """Stop and start one container, or all (-1); returns which. Raises SchedulerError."""

    def kill(self, launch: Launch, progress: Progress = silent, *, untold: bool = False) -> None:
        """Return when nothing of the topology runs. Raises SchedulerError for what does not end in its time.

        Its killed state stands in the store already, where its processes see it; unless they are ``untold``.
        """

    def hold(self, launch: Launch) -> None:
        """It is about to be killed, and its logs are wanted: nothing of them goes before ``remove``."""

    def save_logs(self, launch: Launch, folder: Path) -> None:
        """After ``kill``: bring its logs into ``folder``, the topology's, unless they are there. Raises SchedulerError.

        What it raises has removed nothing: ``kill`` may be asked again, with or without the logs.
        """

    def remove(self, launch: Launch) -> None:
        """Remove what the other methods made outside the topology's folder. Idempotent. Raises SchedulerError."""

    def status(self, launch: Launch) -> SchedulerStatus | None:
        """What is known of the containers; None where a ``heron_scheduler`` process tells. Raises SchedulerError."""


@runtime_checkable
class Watching(Protocol):
    """A scheduler that watches its containers itself."""

    async def run(self) -> None:
        """Reconcile until cancelled."""


@dataclass(frozen=True, slots=True)
class SchedulerContext:
    """What an api server tells the scheduler it makes: its cluster, the store (opened before anything is asked of the
    scheduler), its own environment variables, for options, and where the folders of topologies are. A topology's own
    credential for the store, if it needs one, is in its folder."""

    cluster: str
    store: StateStore
    environment: Mapping[str, str]
    homes: Homes


class SchedulerMaker(Protocol):
    """What ``--scheduler`` of an api server names (entry point group ``heronry.schedulers``)."""

    def __call__(self, context: SchedulerContext, /) -> Scheduler:
        """The one scheduler of the api server. Raises SchedulerError."""
