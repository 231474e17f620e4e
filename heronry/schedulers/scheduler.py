"""What a scheduler offers to the command line, whatever runs the containers underneath.

A scheduler gets a topology whose definition, packing plan and execution state already stand in the state store, and
whose folder (``Launch.home``) holds ``launch.json``, the secret and the user's package. It never writes those.
"""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from heronry.launch import Launch


class SchedulerError(Exception):
    """The scheduler could not do what was asked; the text names the cause and the cure."""


class Scheduler(Protocol):
    """Starts, restarts and ends the containers of one topology."""

    def start(self, launch: Launch, launch_file: Path) -> int:
        """See to it that all containers get started; returns at once. Raises SchedulerError.

        Returns the process id of what watches the containers, or 0 where that is not a process of this host.
        """

    def restart(self, launch: Launch, container: int, timeout_seconds: float) -> tuple[int, ...]:
        """Stop and start one container, or all (-1); returns which. Raises SchedulerError."""

    def kill(self, launch: Launch, timeout_seconds: float) -> bool:
        """Wait until nothing of the topology runs, once its killed state stands in the store.

        False when something still runs at the end of the timeout. Raises SchedulerError.
        """
