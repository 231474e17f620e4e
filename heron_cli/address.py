"""``CLUSTER[/ROLE[/ENV]]``: where a topology runs and for whom."""

from __future__ import annotations

import getpass
import os
from dataclasses import dataclass

from heron_runtime.failures import UsageError
from heron_runtime.model.ids import is_safe_name

LOCAL = "local"  # the cluster of this user on this machine
SLURM = "slurm"  # jobs of this user in the queue that this machine's sbatch knows
SPARK = "spark"  # jobs on Spark, which have neither roles nor environments
OF_HOME = (LOCAL, SLURM)  # the clusters that need no api server
DEFAULT_ENVIRON = "default"


@dataclass(frozen=True)
class Address:
    """Cluster, role and environment; ``None`` where the user left a part out."""

    cluster: str
    given_role: str | None = None
    given_environ: str | None = None

    @property
    def role(self) -> str:
        """The role; by default the user."""
        return self.given_role or user()

    @property
    def environ(self) -> str:
        """The environment; by default ``default``."""
        return self.given_environ or DEFAULT_ENVIRON

    @property
    def parts(self) -> tuple[str, str, str]:
        """Cluster, role, environment."""
        return self.cluster, self.role, self.environ

    def __str__(self) -> str:
        return f"{self.cluster}/{self.role}/{self.environ}"

    def covers(self, role: str, environ: str) -> bool:
        """True unless a part that was given differs: what ``heron list`` shows."""
        return self.given_role in (None, role) and self.given_environ in (None, environ)


def user() -> str:
    """The user's name, as a role."""
    try:
        name = getpass.getuser()
    except (KeyError, OSError):
        name = f"uid{os.getuid()}"
    return name if is_safe_name(name) else "".join(c if is_safe_name("_" + c) else "_" for c in "_" + name)


def parse_address(text: str) -> Address:
    """Split ``CLUSTER[/ROLE[/ENV]]``. Raises UsageError."""
    parts = text.split("/")
    if len(parts) > 3:
        raise UsageError(f"{text!r} has too many parts", "Write CLUSTER[/ROLE[/ENV]], as local/ads/production.")
    for part in parts:
        if not is_safe_name(part):
            raise UsageError(
                f"{part!r} in {text!r} is no name of a cluster, role or environment",
                "Use letters, digits, '_', '-' and '.', beginning with a letter or '_'.",
            )
    if parts[0] == SPARK and len(parts) > 1:
        raise UsageError(f"{text!r}: jobs on Spark have neither roles nor environments", f"Write {SPARK}.")
    return Address(*parts)
