"""A Spark that is kept warm between jobs: what is written down of it, and which jobs it serves.

Theory of operation. ``heron spark start`` keeps a process (``data_pipeline/shell/keeper.py``) with a Spark of its own,
whose JVM listens on loopback. What a job needs to speak to it, the token among that, stands in a file that its user
alone can read. A job that wants what the warm Spark has runs there; any other starts its own, and says why.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

FOLDER = "spark"  # below HERONRY_HOME
#: Of an environment, what differs from command to command and says nothing to a program.
PASSING = frozenset({"_", "OLDPWD", "PWD", "SHLVL", "COLUMNS", "LINES", "PYTHONUNBUFFERED"})
MODIFIABLE = "spark.sql."  # settings that a session may have of its own; the session itself knows the few exceptions


@dataclass(frozen=True)
class Warm:
    """A warm Spark: its keeper's process, where its JVM listens and with which token, and as what it was started.

    ``idle_seconds``: it ends after so long without a job; 0 for never.
    """

    pid: int
    port: int
    token: str
    master: str
    conf: Mapping[str, str]  # of the user who started it
    log: str
    started: float  # seconds since 1970
    idle_seconds: float
    versions: str  # of Heronry, PySpark and Python, and which interpreter

    def to_json(self) -> str:
        """As it stands in its file."""
        return json.dumps(asdict(self), indent=2)

    @classmethod
    def from_json(cls, text: str | bytes) -> Warm:
        """Raises ValueError, TypeError for what is none."""
        return cls(**json.loads(text))


@dataclass(frozen=True)
class Places:
    """The files of a warm Spark in ``folder``, which is its user's alone."""

    folder: Path

    @property
    def record(self) -> Path:
        """What ``Warm`` holds."""
        return self.folder / "session.json"

    @property
    def keeper(self) -> Path:
        """Locked for as long as the keeper lives."""
        return self.folder / "keeper.lock"

    @property
    def job(self) -> Path:
        """Locked by the job that is served; there is one at a time."""
        return self.folder / "job.lock"

    @property
    def unsettled(self) -> Path:
        """There while a job is served, and after one that could not tidy up behind itself."""
        return self.folder / "unsettled"

    @property
    def log(self) -> Path:
        """Spark's own, and what its workers print."""
        return self.folder / "spark.log"

    @property
    def code(self) -> Path:
        """The code of programs, by what is in it."""
        return self.folder / "code"


def reason_against(warm: Warm, master: str, conf: Mapping[str, str], versions: str) -> str:
    """Why a job with this master and these settings of its user cannot run there; "" if it can."""
    if warm.versions != versions:
        return f"it is of another version ({warm.versions}); run `heron spark stop`"
    if warm.master != master:
        return f"it runs at {warm.master}, not at {master}"
    other = sorted(k for k, v in conf.items() if not k.startswith(MODIFIABLE) and warm.conf.get(k) != v)
    return f"it was started without {other[0]}={conf[other[0]]}" if other else ""


def code_name(parts: Iterable[bytes]) -> str:
    """A name for code and what it was told: of equal parts equal, of others another one.

    Workers are used again by jobs with equal names alone, so no function is ever run in a version from before.
    """
    found = hashlib.sha256()
    for part in parts:
        found.update(len(part).to_bytes(8, "little") + part)
    return found.hexdigest()[:32]


def lasting(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables of a command's environment that its workers inherit."""
    return {name: value for name, value in environment.items() if name not in PASSING}
