"""Was it the memory limit of our control group that killed a process?

In a container with a limit the kernel's OOM killer ends the hungriest process by SIGKILL, which looks like any other
``kill -9``. The control group counts its victims; when the count has grown, the reason of a death can name the limit.
Where there is no limit, or no control group that can be read, nothing is said.
"""

from __future__ import annotations

from pathlib import Path

from heron_runtime.model.settings import MiB

# (counter, limit) below the mount of control groups: version 2, then version 1.
FILES = (
    ("memory.events", "memory.max"),
    ("memory/memory.oom_control", "memory/memory.limit_in_bytes"),
)
UNLIMITED = 1 << 60


class MemoryLimit:
    """Reads the control group that ``root`` shows, which in a container is its own."""

    def __init__(self, root: Path = Path("/sys/fs/cgroup")) -> None:
        self._counter: Path | None = None
        self._limit_bytes = 0
        for counter, limit in FILES:
            if self._counter is None and (root / counter).exists():
                self._counter, self._limit_bytes = root / counter, _number(root / limit)
        self._seen = self._count()

    def struck(self) -> bool:
        """True if the OOM killer has struck since the last call."""
        before, self._seen = self._seen, self._count()
        return self._seen > before

    def explain(self, reason: str) -> str:
        """``reason`` (of a death by SIGKILL) with the cause and the cure, if it was the limit."""
        if not 0 < self._limit_bytes < UNLIMITED or not self.struck():
            return reason
        return (
            f"{reason}: out of memory, the container's limit is {self._limit_bytes // MiB} MiB; "
            "raise topology.component.rammap or topology.container.ram"
        )

    def _count(self) -> int:
        try:
            lines = self._counter.read_text().split("\n") if self._counter is not None else []
        except OSError:
            return 0
        return next((int(line.split()[1]) for line in lines if line.startswith("oom_kill ")), 0)


def _number(path: Path) -> int:
    try:
        return int(path.read_text())
    except (OSError, ValueError):  # "max": no limit
        return 0
