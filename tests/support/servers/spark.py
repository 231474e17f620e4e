"""The ``heron`` command with Spark, and a standalone Spark cluster of real processes."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import IO

import pyspark

START_SECS = 240
ROOT = Path(__file__).resolve().parents[3]


class Standalone:
    """Standalone master and one worker with their processes, each the leader of a process group."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.processes: list[subprocess.Popen[bytes]] = []
        self.url = ""

    def start(self) -> None:
        self._daemon("master.Master", "--host", "127.0.0.1", "--port", "0", "--webui-port", "0")
        self.url = self._wait_for("master.Master", r"Starting Spark master at (spark://\S+)")
        self._daemon(
            "worker.Worker", "--host", "127.0.0.1", "--webui-port", "0", "--cores", "2", "--memory", "2g",
            "--work-dir", str(self.folder / "work"), self.url,
        )  # fmt: skip
        self._wait_for("worker.Worker", r"Successfully registered with master (\S+)")

    def _daemon(self, name: str, *arguments: str) -> None:
        home = Path(pyspark.__file__).parent
        environment = {
            **os.environ, "SPARK_DAEMON_MEMORY": "256m", "SPARK_LOCAL_IP": "127.0.0.1", "SPARK_HOME": str(home),
            "PYTHONPATH": "",  # executors get Heronry's code from the job, not from this checkout
        }  # fmt: skip
        with self._log(name).open("wb") as log:
            command = [str(home / "bin" / "spark-class"), f"org.apache.spark.deploy.{name}", *arguments]
            process = subprocess.Popen(
                command, stdout=log, stderr=subprocess.STDOUT, env=environment, cwd=self.folder, start_new_session=True
            )
        self.processes.append(process)

    def _log(self, name: str) -> Path:
        return self.folder / f"{name}.log"

    def _wait_for(self, name: str, pattern: str) -> str:
        until = time.monotonic() + START_SECS
        while time.monotonic() < until:
            found = re.search(pattern, self._log(name).read_text(errors="replace"))
            if found:
                return found.group(1)
            if any(process.poll() is not None for process in self.processes):
                break
            time.sleep(0.1)
        raise AssertionError(f"{name} did not start:\n{self._log(name).read_text(errors='replace')[-3000:]}")

    def stop(self) -> None:
        for process in reversed(self.processes):
            try:
                os.killpg(process.pid, signal.SIGTERM)
                process.wait(30)
            except (ProcessLookupError, subprocess.TimeoutExpired):
                pass
            try:
                os.killpg(process.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            process.wait(30)


def run_heron(home: Path, *arguments: str, timeout: float = 600, stderr: IO[bytes] | int = subprocess.PIPE):
    """Run a ``heron`` command with its own home, as a user types it."""
    home.mkdir(exist_ok=True)
    environment = {**os.environ, "HERONRY_HOME": str(home), "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "heron_cli", *arguments]
    return subprocess.run(
        command, env=environment, cwd=home, stdout=subprocess.PIPE, stderr=stderr, timeout=timeout, check=False
    )
