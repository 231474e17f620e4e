"""Warm Spark: the record of a Spark process that is kept between jobs, and the jobs that it serves.

``heron spark start`` keeps a process (``data_pipeline/shell/keeper.py``) with its own Spark, whose JVM listens on
loopback. All that a job needs to connect, including the token, is in a file that only its user can read. A job whose
settings match those of the warm Spark runs there. Any other job starts its own Spark and reports the reason.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

FOLDER = "spark"  # below HERONRY_HOME
#: Environment variables that differ between commands and do not matter to a program.
PASSING = frozenset({"_", "OLDPWD", "PWD", "SHLVL", "COLUMNS", "LINES", "PYTHONUNBUFFERED"})
MODIFIABLE = "spark.sql."  # prefix of settings that a session may change; the session itself knows the few exceptions


@dataclass(frozen=True)
class Warm:
    """Record of a warm Spark: its keeper's process, the address and token of its JVM, and its settings.

    ``idle_seconds`` is the time without a job after which it ends; 0 means never.
    """

    pid: int
    port: int
    token: str
    master: str
    conf: Mapping[str, str]  # spark.* settings of the user who started it
    log: str
    started: float  # seconds since 1970
    idle_seconds: float
    versions: str  # of Heronry, PySpark and Python, with the interpreter's path

    def to_json(self) -> str:
        """Return the record as the JSON text of its file."""
        return json.dumps(asdict(self), indent=2)

    @classmethod
    def from_json(cls, text: str | bytes) -> Warm:
        """Read the record from its JSON text. Raises ValueError or TypeError if the text is invalid."""
        return cls(**json.loads(text))


@dataclass(frozen=True)
class Places:
    """Paths of a warm Spark's files in ``folder``, which only its user can access."""

    folder: Path

    @property
    def record(self) -> Path:
        """File with the JSON of ``Warm``."""
        return self.folder / "session.json"

    @property
    def keeper(self) -> Path:
        """Lock file that the keeper holds for its lifetime."""
        return self.folder / "keeper.lock"

    @property
    def job(self) -> Path:
        """Lock file that the served job holds; only one job is served at a time."""
        return self.folder / "job.lock"

    @property
    def unsettled(self) -> Path:
        """File that exists while a job is served, and after a job that could not clean up."""
        return self.folder / "unsettled"

    @property
    def log(self) -> Path:
        """Log of Spark, with the output of its workers."""
        return self.folder / "spark.log"

    @property
    def code(self) -> Path:
        """Folder of the code of programs, named by content."""
        return self.folder / "code"


def reason_against(warm: Warm, master: str, conf: Mapping[str, str], versions: str) -> str:
    """Return the reason why a job with this master and these user settings cannot run there; "" if it can."""
    if warm.versions != versions:
        return f"it is of another version ({warm.versions}); run `heron spark stop`"
    if warm.master != master:
        return f"it runs at {warm.master}, not at {master}"
    other = sorted(k for k, v in conf.items() if not k.startswith(MODIFIABLE) and warm.conf.get(k) != v)
    return f"it was started without {other[0]}={conf[other[0]]}" if other else ""


def code_name(parts: Iterable[bytes]) -> str:
    """Return a name for code and its arguments: a hash of ``parts``.

    Only jobs with equal names share workers, so a function is never run in an earlier version.
    """
    digest = hashlib.sha256()
    for part in parts:
        digest.update(len(part).to_bytes(8, "little") + part)
    return digest.hexdigest()[:32]


def lasting(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables of a command's environment that its workers inherit."""
    return {name: value for name, value in environment.items() if name not in PASSING}
