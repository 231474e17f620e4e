"""Commands of a user against a cluster under test: submit, status and others that every cluster has."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.support.waiting import wait_until

ROOT = Path(__file__).resolve().parents[3]
SETTINGS = {  # of topologies: deaths are detected quickly
    "heron.state.session.timeout.secs": 4,
    "heron.metrics.interval.secs": 1,
    "heron.stop.grace.secs": 3,
}


class ClusterCommands:
    """Commands at ``address``; a subclass runs them with ``run_here``, on the network of its cluster."""

    address: str
    environment: dict[str, str]

    def run_here(self, *command: str, **arguments: Any) -> subprocess.CompletedProcess[str]:
        """Run a command where the cluster can be reached."""
        raise NotImplementedError

    def heron(self, *arguments: str, code: int = 0, stdin: str = "") -> str:
        """Run the installed ``heron``, which must exit with ``code``; return its output."""
        done = self.try_heron(*arguments, stdin=stdin)
        said = f"heron {' '.join(arguments)}: exit {done.returncode}\n{done.stdout}\n{done.stderr}"
        assert done.returncode == code, said
        return done.stdout + done.stderr if code else done.stdout

    def try_heron(self, *arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
        """Run the installed ``heron``, which may fail."""
        command = (sys.executable, "-m", "heron_cli", *arguments)
        return self.run_here(*command, check=False, input=stdin, env=self.environment, cwd=ROOT)

    def say(self, *arguments: str) -> str:
        """Return the output of a read-only command, or an empty string if it fails."""
        done = self.try_heron(*arguments)
        return done.stdout if done.returncode == 0 else ""

    def submit(self, file: Path, topology: str, name: str, given: dict[str, Any], *options: str) -> None:
        """Submit; every task runs when this returns."""
        settings = [f"--config-property={key}={value}" for key, value in SETTINGS.items()]
        self.heron(
            "submit", self.address, str(file), topology, "--name", name, "--wait-timeout", "240", *settings, *options,
            "--", json.dumps(given),
        )  # fmt: skip

    def status(self, name: str) -> dict[str, Any]:
        """Return ``heron status -o json``, or an empty dict while the API server does not answer."""
        done = self.try_heron("status", self.address, name, "-o", "json")
        return json.loads(done.stdout) if done.returncode == 0 else {}

    def runs(self, name: str) -> bool:
        """Return True when the whole topology runs."""
        return bool(self.status(name).get("state") == "running")

    def wait_until_it_runs(self, name: str) -> None:
        """Wait until every process of the topology runs."""
        wait_until(lambda: self.runs(name), f"{name} runs")
