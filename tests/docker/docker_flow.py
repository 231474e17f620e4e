"""Observer of the files that a topology's sinks and spouts have written on its volume.

A separate container mounts the volume read-only. It reports every tenth of a second how many bytes the sinks have
written and the progress of the spouts, so faults of the topology's containers do not affect the observer.
``docker_fault_topology`` writes these files.
"""

from __future__ import annotations

import json
import subprocess
import threading
import time
from bisect import bisect_left, bisect_right
from pathlib import Path

from tests.support.clusters.compose import TAG, docker, stranger, wait_for_cluster

SAMPLE_SECONDS = 0.1
_LOOP = f"""
import json, os, pathlib, time
out = pathlib.Path("/volume/out")
while True:
    size = sum(p.stat().st_size for p in out.glob("sink-*"))
    progress = [json.loads(p.read_text()) for p in out.glob("progress-*.json")]
    print(json.dumps([size, progress]), flush=True)
    time.sleep({SAMPLE_SECONDS})
"""


class DockerFlow:
    """Observer of one topology's volume until ``close``."""

    def __init__(self, project: str, topology: str) -> None:
        wanted = (
            "--filter",
            f"label=org.heronry.cluster={project}",
            "--filter",
            f"label=org.heronry.topology={topology}",
        )
        self.volume = docker("volume", "ls", "--quiet", *wanted)
        self._name = f"{project}-watch-{topology.lower()}"
        self._samples: list[tuple[float, int]] = []
        self.progress: list[dict[str, object]] = []
        command = ["docker", "run", "--rm", "--name", self._name, *stranger(project), "--network", "none", "--init"]
        command += ["--volume", f"{self.volume}:/volume:ro", f"heronry:{TAG}", "python", "-c", _LOOP]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()
        wait_for_cluster(lambda: self._samples, f"the watcher of {topology} tells something")

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            size, self.progress = json.loads(line)
            self._samples.append((time.monotonic(), size))

    def close(self) -> None:
        """Stop the observer, so that the volume can be removed."""
        docker("rm", "--force", self._name, check=False)
        self._process.wait(30)
        self._thread.join(30)
        assert self._process.stdout is not None
        self._process.stdout.close()

    @property
    def bytes(self) -> int:
        """Return the bytes written so far."""
        return self._samples[-1][1]

    def rate(self, until: float, seconds: float) -> float:
        """Return the bytes per second in the ``seconds`` before ``until``."""
        samples = self._samples
        first = bisect_left(samples, (until - seconds - SAMPLE_SECONDS, 0))
        last = bisect_right(samples, (until, 1 << 62)) - 1
        if last <= first:
            return 0.0
        (t0, s0), (t1, s1) = samples[first], samples[last]
        return (s1 - s0) / (t1 - t0)

    def seconds_to(self, share: float, of_rate: float, after: float, until: float, window: float) -> float | None:
        """Return when the flow reached this share of a rate again, in seconds after ``after``.

        The result is 0 if it never fell below, and None if it has not recovered. Losses later than ``until`` do not
        count. Rates are those of a ``window`` of seconds.
        """
        times = [t for t, _ in self._samples if t >= after + window]
        good = [(t, self.rate(t, window) >= share * of_rate) for t in times]
        missed = [t for t, enough in good if not enough and t <= until]
        if not missed:
            return 0.0
        return next((t - after for t, enough in good if enough and t > missed[-1]), None)

    def spouts(self) -> dict[int, dict[str, int]]:
        """Return the saved progress of each spout, by share."""
        return {int(str(p["share"])): p for p in list(self.progress)}  # type: ignore[misc]  # as Lines.save writes it

    def failed(self) -> int:
        """Return how many lines failed at the spouts."""
        return sum(sum(p["failed"].values()) for p in self.spouts().values())  # type: ignore[attr-defined]  # a mapping

    def all_below_are_acked(self, wanted: dict[int, int]) -> bool:
        """Return True when each spout (by share) has every line below ``wanted`` acked."""
        now = self.spouts()
        return all(share in now and now[share]["done"] >= number for share, number in wanted.items())

    def copy(self, folder: Path) -> Path:
        """Copy the current files."""
        docker("cp", f"{self._name}:/volume/out", str(folder))
        return folder / "out"
