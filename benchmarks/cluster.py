"""One topology on a separate embedded cluster, run by the ``heron`` command, with CPU and memory of its processes."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

ROOT = Path(__file__).resolve().parent.parent
NAME = "Benchmark"  # followed by the number of the process that runs it
STACKS_SECONDS = 2.0  # time to write them


@dataclass
class Usage:
    """CPU seconds and memory of the topology's processes at one moment."""

    cpu_seconds: dict[int, float] = field(default_factory=dict)
    kinds: dict[int, str] = field(default_factory=dict)
    rss_bytes: int = 0
    pss_bytes: dict[int, int] = field(default_factory=dict)

    def since(self, earlier: Usage) -> float:
        """Return the CPU seconds used since an earlier moment by the processes that live now."""
        return sum(seconds - earlier.cpu_seconds.get(pid, 0.0) for pid, seconds in self.cpu_seconds.items())

    def by_kind_since(self, earlier: Usage) -> dict[str, float]:
        """Return the CPU seconds used since an earlier moment by each kind of process."""
        found: dict[str, float] = {}
        for pid, seconds in self.cpu_seconds.items():
            kind = self.kinds[pid]
            found[kind] = found.get(kind, 0.0) + seconds - earlier.cpu_seconds.get(pid, 0.0)
        return found


class Cluster:
    """Temporary home with one topology, or a topology in the home of another instance of this class."""

    def __init__(self, home: Path | None = None, suffix: str = "") -> None:
        self.name = f"{NAME}{os.getpid()}{suffix}"
        self._owns_home = home is None
        self.home = Path(tempfile.mkdtemp(prefix="heronry-bench-")) if home is None else home
        self.environment = {**os.environ, "HERONRY_HOME": str(self.home)}

    def heron(self, *arguments: str) -> str:
        """Run a command; return its standard output. Raises CalledProcessError."""
        done = subprocess.run(
            [sys.executable, "-m", "heron_cli", *arguments],
            cwd=ROOT, env=self.environment, stdout=subprocess.PIPE, text=True, check=True,
        )  # fmt: skip
        return done.stdout

    def submit(
        self, arguments: dict[str, Any], settings: dict[str, Any], file: str = "benchmarks/topologies.py"
    ) -> None:
        """Submit the topology ``benchmark`` of a file with these heron.* settings and wait until every task runs."""
        properties = [part for key, value in settings.items() for part in ("--config-property", f"{key}={value}")]
        self.heron("submit", *properties, "local", file, "benchmark", "--", json.dumps(arguments))

    def processes(self) -> list[dict[str, Any]]:
        """Return the processes as ``heron status`` lists them."""
        return list(json.loads(self.heron("status", "local", self.name, "-o", "json"))["processes"])

    def usage(self, memory: bool = False) -> Usage:
        """Return the CPU of all processes with the topology's name in their title, children included."""
        found = Usage()
        for process in psutil.process_iter(["pid", "cmdline"]):
            line = " ".join(process.info["cmdline"] or ())
            if f"heron:{self.name}:" not in line:
                continue
            try:
                times = process.cpu_times()
                found.cpu_seconds[process.pid] = times.user + times.system
                found.kinds[process.pid] = kind_of(line)
                if memory:
                    full = process.memory_full_info()
                    found.rss_bytes += full.rss
                    found.pss_bytes[process.pid] = full.pss
            except psutil.NoSuchProcess:
                continue
        return found

    def keep_logs(self) -> Path:
        """Copy the logs and the current status to a permanent folder; return the folder."""
        kept = Path(tempfile.mkdtemp(prefix=f"{self.name}-"))
        for process in self.processes():
            if process["kind"] in ("heron_instance", "stream_manager") and process["pid"]:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(process["pid"], signal.SIGUSR1)  # writes the stacks of all threads to its log
        time.sleep(STACKS_SECONDS)
        (kept / "status.txt").write_text(self.heron("status", "local", self.name))
        shutil.copytree(self.home, kept / "home", ignore=shutil.ignore_patterns("*.sock"))
        return kept

    def close(self) -> None:
        """Kill the topology, and remove the home if it is its own."""
        subprocess.run(
            [sys.executable, "-m", "heron_cli", "kill", "local", self.name],
            cwd=ROOT, env=self.environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False,
        )  # fmt: skip
        if self._owns_home:
            shutil.rmtree(self.home, ignore_errors=True)


def kind_of(line: str) -> str:
    """Return the kind of a process title: a package, or an instance's component."""
    name = line.split(f"heron:{NAME}", 1)[1].split(":", 1)[1].split()[0]
    if name.startswith("container_"):
        return name.split("_", 2)[2].rsplit("_", 1)[0]
    return name.split("-")[0]
