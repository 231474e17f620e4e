"""Scheduler that works like ``local``, but starts topologies only if enough memory is free.

A scheduler of another kind implements the whole protocol (``heron_control.schedulers.scheduler.Scheduler``) and, if it
watches the containers itself, sets ``heron.scheduler`` in the launch that ``prepare`` returns, as ``docker`` does.
"""

from __future__ import annotations

from pathlib import Path

import psutil

from heron_control.schedulers.local import LocalScheduler
from heron_control.schedulers.scheduler import Scheduler, SchedulerContext, SchedulerError
from heron_runtime.launch import Launch

MiB = 1024 * 1024


class FrugalScheduler(LocalScheduler):
    """Scheduler that requires ``free_mib`` of free memory for a submit."""

    def __init__(self, free_mib: int) -> None:
        self.free_mib = free_mib

    def prepare(self, launch: Launch, folder: Path, package: Path) -> Launch:
        """Check the free memory before anything is created. Raises SchedulerError."""
        free = psutil.virtual_memory().available // MiB
        if free < self.free_mib:
            raise SchedulerError(f"{free} MiB of memory are free; {launch.topology} needs {self.free_mib} MiB")
        return super().prepare(launch, folder, package)


def scheduler_of(context: SchedulerContext) -> Scheduler:
    """Create the scheduler with options from the environment of the API server."""
    return FrugalScheduler(int(context.environment.get("FRUGAL_FREE_MIB", "512")))
