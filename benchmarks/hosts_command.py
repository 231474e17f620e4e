"""``python -m benchmarks.hosts_command …``: the ``heron`` command whose cluster ``local`` runs each container on a
simulated host of its own (``benchmarks.hosts``). All else is the command's own code."""

from __future__ import annotations

from pathlib import Path

from heron_cli import application as command
from heron_control.schedulers import local
from heron_control.schedulers.scheduler import SchedulerError
from heron_runtime.commands import start_session
from heron_runtime.launch import Launch


class HostsScheduler(local.LocalScheduler):
    """Its process is ``benchmarks.hosts_scheduler``."""

    def start(self, launch: Launch, launch_file: Path) -> int:
        """As ``local.start``."""
        try:
            log_file = launch.log_dir / "heron_scheduler.log"
            process = start_session(
                "benchmarks.hosts_scheduler", ["--launch", str(launch_file.resolve())], launch.home, log_file
            )
        except OSError as error:
            raise SchedulerError(f"cannot start the scheduler of {launch.topology}: {error}") from error
        process.returncode = 0  # it outlives us
        return process.pid


if __name__ == "__main__":
    local.LocalScheduler = HostsScheduler  # type: ignore[misc]  # reason: its containers begin on hosts of their own
    command.main()
