"""``heron_scheduler`` that starts each container in the namespace, and with the address, of its simulated host."""

from __future__ import annotations

import os
import subprocess
from dataclasses import replace
from pathlib import Path

from benchmarks.hosts import PREFIX_VARIABLE, address, namespace
from heron_runtime.commands import child_environment, python_command
from heron_scheduler import process
from heron_scheduler.container_supervisor import log_file
from heron_scheduler.local_backend import LocalBackend


class HostsBackend(LocalBackend):
    """Process groups, each on a host of its own; state, files and sockets of a folder are shared by all."""

    def start(self, number: int) -> subprocess.Popen[bytes]:
        """Start a container by nsenter, which becomes heron_container."""
        here = address(number)
        file = Path(self._launch.runtime_dir, f"host{number}.json")
        replace(self._launch, host=here, bind=here).save(file)
        command = python_command("heron_container", "--launch", str(file), "--container", str(number), "--own-log")
        host = namespace(os.environ[PREFIX_VARIABLE], number)
        path = log_file(self._launch, number)
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), "ab") as log:
            return subprocess.Popen(
                ["nsenter", f"--net=/run/netns/{host}", *command], stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                cwd=self._launch.home, env=child_environment(), start_new_session=True,
            )  # fmt: skip


if __name__ == "__main__":
    process.LocalBackend = HostsBackend  # type: ignore[attr-defined]  # reason: it makes them so
    process.main()
