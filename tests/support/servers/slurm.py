"""A real Slurm on this machine for tests: munged, a controller and two nodes with their own addresses.

The nodes are two slurmd on 127.0.0.1 and 127.0.0.2, so each has to connect to the address that the other publishes.
Steps are tracked by cgroups, as usual on clusters. The controller and each slurmd can be killed and restarted.
``close`` ends every process by its id.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from tests.support.ports import free_ports
from tests.support.waiting import wait_until

START_SECONDS = 60.0
NODES = {"n1": "127.0.0.1", "n2": "127.0.0.2"}
CORES, MEMORY_MIB = 5, 6000  # of each node, as Slurm counts them: one node is too small for all slots of a topology
LOST_SECONDS = 5  # SlurmdTimeout


class SlurmServers:
    """Cluster named ``test`` with a partition ``test``. Requires root, and cgroups of version 1."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="heronry-slurm-", dir="/tmp"))
        self.folder.chmod(0o755)
        for name in ("state", "log", *(f"spool-{node}" for node in NODES)):
            (self.folder / name).mkdir()
        key = self.folder / "munge.key"
        key.write_bytes(secrets.token_bytes(128))
        key.chmod(0o400)
        self.file = self.folder / "slurm.conf"
        self.file.write_text(self._settings())
        (self.folder / "cgroup.conf").write_text(
            "CgroupPlugin=cgroup/v1\nCgroupAutomount=no\nCgroupMountpoint=/sys/fs/cgroup\nConstrainRAMSpace=yes\n"
        )
        self.environment = {**os.environ, "SLURM_CONF": str(self.file)}

    def _settings(self) -> str:
        ctld, *nodes = free_ports(1 + len(NODES))
        host, folder = socket.gethostname().split(".")[0], self.folder
        settings = {
            "ClusterName": "test",
            "SlurmctldHost": f"{host}(127.0.0.1)",
            "SlurmUser": "root",
            "SlurmdUser": "root",
            "AuthType": "auth/munge",
            "AuthInfo": f"socket={folder}/munge.socket,cred_expire=6",  # a requeue waits for the expiry
            "CredType": "cred/munge",
            "CommunicationParameters": "NoCtldInAddrAny",
            "SlurmctldPort": ctld,
            "StateSaveLocation": f"{folder}/state",
            "SlurmdSpoolDir": f"{folder}/spool-%n",
            "SlurmctldPidFile": f"{folder}/slurmctld.pid",
            "SlurmdPidFile": f"{folder}/slurmd-%n.pid",
            "SlurmctldLogFile": f"{folder}/log/slurmctld",
            "SlurmdLogFile": f"{folder}/log/slurmd-%n",
            "ProctrackType": "proctrack/cgroup",
            "TaskPlugin": "task/cgroup",
            "SwitchType": "switch/none",
            "MpiDefault": "none",
            "MessageTimeout": 5,
            "SelectType": "select/cons_tres",
            "SelectTypeParameters": "CR_CPU_Memory",
            "JobAcctGatherType": "jobacct_gather/none",
            "AccountingStorageType": "accounting_storage/none",
            "ReturnToService": 2,
            "SlurmdTimeout": LOST_SECONDS,
            "SlurmctldTimeout": 10,
            "KillWait": 10,
            "UnkillableStepTimeout": 20,
            "MinJobAge": 60,
            "SchedulerParameters": "sched_interval=2,batch_sched_delay=0",
            "SlurmdParameters": "config_overrides",
        }
        lines = [f"{key}={value}" for key, value in settings.items()]
        for (name, address), port in zip(NODES.items(), nodes, strict=True):
            lines.append(
                f"NodeName={name} NodeHostname={host} NodeAddr={address} Port={port} CPUs={CORES} "
                f"RealMemory={MEMORY_MIB} State=UNKNOWN"
            )
        lines.append(f"PartitionName=test Nodes={','.join(NODES)} Default=YES MaxTime=INFINITE State=UP")
        return "\n".join(lines) + "\n"

    def run(self, *command: str) -> str:
        """Return the output of a Slurm command."""
        done = subprocess.run(command, env=self.environment, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 0, f"{command}: {done.stderr}"
        return done.stdout

    def start(self) -> None:
        """Start all daemons; return when both nodes are idle."""
        folder = self.folder
        self.run(
            "munged", "--force", "--key-file", f"{folder}/munge.key", "--socket", f"{folder}/munge.socket",
            "--pid-file", f"{folder}/munged.pid", "--log-file", f"{folder}/log/munged",
            "--seed-file", f"{folder}/munge.seed",
        )  # fmt: skip
        self.start_controller()
        for node in NODES:
            self.start_node(node)
        self.wait_for("both nodes are idle", lambda: self.states() == dict.fromkeys(NODES, "idle"))

    def wait_for(self, what: str, condition: Callable[[], object], seconds: float = START_SECONDS) -> None:
        """Wait for a condition; a controller that does not answer yet is asked again."""
        wait_until(condition, what, seconds, retry_on=(AssertionError, subprocess.TimeoutExpired))

    def states(self) -> dict[str, str]:
        """Return the states of the nodes, such as idle, mixed, down*."""
        return dict(line.split() for line in self.run("sinfo", "-hN", "-o", "%N %t").splitlines())

    def jobs(self) -> list[str]:
        """Return the ids of the queued jobs."""
        return self.run("squeue", "-h", "-o", "%A").split()

    def steps(self, name: str) -> dict[str, str]:
        """Return the nodes of the running steps of this name, by id."""
        rows = [line.split("|") for line in self.run("squeue", "-hs", "-o", "%i|%j|%N").splitlines()]
        return {step: node for step, found, node in rows if found == name}

    def start_controller(self) -> None:
        """Start the controller from its saved state."""
        self.run("slurmctld")

    def kill_controller(self) -> None:
        """Kill the controller, as a machine failure would."""
        self._end("slurmctld", signal.SIGKILL)

    def start_node(self, node: str) -> None:
        """Start the slurmd of a node."""
        self.run("slurmd", "-N", node)

    def kill_node(self, node: str) -> None:
        """Kill the slurmd of a node; processes on the node keep running."""
        self._end(f"slurmd-{node}", signal.SIGKILL)

    def close(self) -> None:
        """End all jobs, then all daemons, and remove the folder."""
        with contextlib.suppress(AssertionError, subprocess.TimeoutExpired):
            self.run("scancel", "--me")
            self.wait_for("the queue is empty", lambda: not self.jobs())
        for name in (*(f"slurmd-{node}" for node in NODES), "slurmctld", "munged"):
            self._end(name, signal.SIGTERM)
        shutil.rmtree(self.folder, ignore_errors=True)

    def _end(self, name: str, number: int) -> None:
        """Signal the daemon of this name, and wait for its end."""
        file = self.folder / f"{name}.pid"
        pid = int(file.read_text()) if file.exists() else 0
        if not pid or not Path(f"/proc/{pid}").exists():
            return
        os.kill(pid, number)
        deadline = time.monotonic() + START_SECONDS
        while Path(f"/proc/{pid}").exists():
            assert time.monotonic() < deadline, f"{name} does not end"
            time.sleep(0.05)
        file.unlink(missing_ok=True)


@contextlib.contextmanager
def slurm_servers() -> Iterator[SlurmServers]:
    """Yield a running cluster, and remove it afterwards."""
    servers = SlurmServers()
    try:
        servers.start()
        yield servers
    finally:
        servers.close()


def main() -> None:
    """Run a Slurm cluster until Ctrl-C, for manual experiments."""
    with slurm_servers() as servers:
        print(f"export SLURM_CONF={servers.file}", flush=True)
        with contextlib.suppress(KeyboardInterrupt):
            signal.pause()


if __name__ == "__main__":
    main()
