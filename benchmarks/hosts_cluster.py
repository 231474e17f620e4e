"""One topology whose containers are on simulated hosts, its state in a ZooKeeper server of the driver's host."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from benchmarks.cluster import ROOT, Cluster, Usage
from benchmarks.hosts import HUB, PREFIX_VARIABLE, Hosts, Traffic, traffic
from benchmarks.zookeeper_server import ZookeeperServer

LEAST_FREE_BYTES = 3_000_000_000  # the machine has others on it
LOOK_SECONDS = 0.5


class TooLarge(Exception):
    """The machine has no memory for so many containers."""


class HostsCluster(Cluster):
    """As ``Cluster``; the command is ``benchmarks.hosts_command``."""

    def __init__(self, hosts: Hosts) -> None:
        super().__init__()
        self.environment |= {PREFIX_VARIABLE: hosts.prefix, "PYTHONPATH": str(ROOT)}
        self.wait_seconds = 120

    def heron(self, *arguments: str) -> str:
        """One command; its standard output. Raises CalledProcessError."""
        return self._finish([sys.executable, "-m", "benchmarks.hosts_command", *arguments], lambda: None)

    def submit(
        self, arguments: dict[str, Any], settings: dict[str, Any], file: str = "benchmarks/topologies.py"
    ) -> None:
        """As ``Cluster.submit``. Raises CalledProcessError; TooLarge for what this machine has no memory for."""
        properties = [part for key, value in settings.items() for part in ("--config-property", f"{key}={value}")]
        command = [sys.executable, "-m", "benchmarks.hosts_command", "submit", *properties]
        command += ["--wait-timeout", str(self.wait_seconds), "local", file, "benchmark", "--", json.dumps(arguments)]
        self._finish(command, self._need_memory)

    def _need_memory(self) -> None:
        free = psutil.virtual_memory().available
        if free < LEAST_FREE_BYTES:
            found = self.usage()
            managers = sum(kind == "stream_manager" for kind in found.kinds.values())
            raise TooLarge(
                f"{free / 1e6:,.0f} MB of memory are free when {managers} stream managers run ({len(found.kinds)} "
                f"processes of the topology, {sum(found.cpu_seconds.values()):,.0f} s of CPU): this is ended"
            )

    def _finish(self, command: list[str], look: Callable[[], None]) -> str:
        """Run it to its end, and look at something meanwhile."""
        with subprocess.Popen(command, cwd=ROOT, env=self.environment, stdout=subprocess.PIPE, text=True) as process:
            try:
                while True:
                    with contextlib.suppress(subprocess.TimeoutExpired):
                        output, _ = process.communicate(timeout=LOOK_SECONDS)
                        break
                    look()
            except BaseException:
                process.kill()
                raise
        if process.returncode:
            raise subprocess.CalledProcessError(process.returncode, command, output)
        return output


@contextmanager
def hosts_cluster(containers: int) -> Iterator[tuple[HostsCluster, ZookeeperServer]]:
    """Hosts for so many containers with tasks and that of the master; nothing of them is left at the end. Raises
    NoHosts, NoServer."""
    with ExitStack() as stack:
        hosts = Hosts(containers + 1)
        stack.callback(hosts.close)
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="heronry-zookeeper-"))
        server = ZookeeperServer(Path(folder), HUB)
        stack.callback(server.close)
        cluster = HostsCluster(hosts)
        stack.callback(end_left, cluster.name)
        stack.callback(cluster.close)
        config = {"local": {"heron.state.url": server.url}}
        (cluster.home / "config.yaml").write_text(json.dumps(config))  # which is YAML, too
        yield cluster, server


def end_left(name: str) -> None:
    """What the command could not end: each process whose title has the name of our topology."""
    for process in psutil.process_iter(["cmdline"]):
        if f"heron:{name}:" in " ".join(process.info["cmdline"] or ()):
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()


@dataclass(frozen=True)
class Moment:
    """What was used until now."""

    at: float
    usage: Usage
    traffic: Traffic
    requests: float
    server_cpu: float


def moment(cluster: Cluster, server: ZookeeperServer) -> Moment:
    """Now."""
    return Moment(
        time.monotonic(), cluster.usage(), traffic(), server.figures()["packets_received"], server.cpu_seconds()
    )


def figures(first: Moment, last: Moment) -> dict[str, Any]:
    """Between two moments, for each second: cores by kind of process, packets and bytes between the hosts."""
    seconds = last.at - first.at
    sent = last.traffic.since(first.traffic)
    return {
        "seconds": round(seconds, 2),
        "cores": last.usage.since(first.usage) / seconds,
        "cores_by_kind": {kind: used / seconds for kind, used in sorted(last.usage.by_kind_since(first.usage).items())},
        "packets": (sent.packets - sent.hub_packets) / seconds,
        "bytes": (sent.bytes - sent.hub_bytes) / seconds,
        "store_packets": sent.hub_packets / seconds,
        "store_requests": (last.requests - first.requests) / seconds,
        "store_cores": (last.server_cpu - first.server_cpu) / seconds,
        "load": round(os.getloadavg()[0], 2),
    }
