"""Scheduler under test whose containers are processes of this machine: local and Slurm."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import psutil

from heron_control.schedulers.identity import process_title
from tests.support.waiting import wait_until


class ProcessScheduler:
    """Scheduler whose processes all run on this machine, identified by pid. ``address`` is its cluster."""

    options: tuple[str, ...] = (
        "--config-property",
        "heron.stop.grace.secs=2",
        "--config-property",
        "heron.metrics.interval.secs=1",
    )

    def __init__(self, address: str, home: Path, **environment: str) -> None:
        self.address = address
        self.environment = {**os.environ, "HERONRY_HOME": str(home), "NO_COLOR": "1", **environment}
        self._home = home

    def life(self, name: str, number: int) -> str:
        return self._pid(name, f"heron_container-{number}")

    def end(self, name: str, number: int) -> None:
        os.kill(int(self.life(name, number)), signal.SIGKILL)

    def restart_scheduler(self, name: str) -> None:
        before = self._pid(name, "heron_scheduler")
        os.kill(int(before), signal.SIGKILL)
        wait_until(lambda: self._pid(name, "heron_scheduler") not in ("", before), "another scheduler is there")

    def left(self, name: str) -> list[str]:
        files = [str(path) for path in self._home.glob(f"topologies/**/{name}") if path.is_dir()]
        return files + [" ".join(p.info["cmdline"]) for p in self._titled(process_title(name, ""))]

    def _pid(self, name: str, process: str) -> str:
        wanted = process_title(name, process)
        return next((str(p.pid) for p in self._titled(wanted) if " ".join(p.info["cmdline"]).strip() == wanted), "")

    @staticmethod
    def _titled(prefix: str) -> list[psutil.Process]:
        found = psutil.process_iter(["cmdline", "status"])
        return [
            p
            for p in found
            if " ".join(p.info["cmdline"] or ()).startswith(prefix) and p.info["status"] != psutil.STATUS_ZOMBIE
        ]
