"""Cluster addresses (``CLUSTER[/ROLE[/ENV]]``) and the clients that serve them.

``local`` runs topologies on this machine, and ``slurm`` runs them as Slurm jobs. Every other cluster has an API server
and an entry in ``credentials.json``, which ``heron login`` writes.
"""

from __future__ import annotations

import getpass
import os
from dataclasses import dataclass

from heron_cli.cluster_client import ClusterClient
from heron_cli.home import Home, read_credentials
from heron_runtime.failures import NotFound, UsageError, did_you_mean, listing
from heron_runtime.model.ids import is_safe_name

LOCAL = "local"  # processes of this user on this machine
SLURM = "slurm"  # jobs of this user in the queue that sbatch of this machine uses
SPARK = "spark"  # jobs on Spark, which have neither roles nor environments
HOME_CLUSTERS = (LOCAL, SLURM)  # clusters without an API server
DEFAULT_ENVIRON = "default"


@dataclass(frozen=True)
class ClusterAddress:
    """Cluster, role and environment. A part that the user left out is None."""

    cluster: str
    given_role: str | None = None
    given_environ: str | None = None

    @property
    def role(self) -> str:
        """The role, by default the name of the user."""
        return self.given_role or user_role()

    @property
    def environ(self) -> str:
        """The environment, by default ``default``."""
        return self.given_environ or DEFAULT_ENVIRON

    def __str__(self) -> str:
        return f"{self.cluster}/{self.role}/{self.environ}"

    def covers(self, role: str, environ: str) -> bool:
        """Return whether role and environment match the parts that were given."""
        return self.given_role in (None, role) and self.given_environ in (None, environ)


def user_role() -> str:
    """Return the name of the user as a valid role."""
    try:
        name = getpass.getuser()
    except (KeyError, OSError):
        name = f"uid{os.getuid()}"
    return name if is_safe_name(name) else "".join(c if is_safe_name("_" + c) else "_" for c in "_" + name)


def parse_cluster_address(text: str) -> ClusterAddress:
    """Parse ``CLUSTER[/ROLE[/ENV]]``. Raises UsageError."""
    parts = text.split("/")
    if len(parts) > 3:
        raise UsageError(
            f"{text!r} has too many parts", "Write CLUSTER[/ROLE[/ENV]], for example local/ads/production."
        )
    for part in parts:
        if not is_safe_name(part):
            raise UsageError(
                f"{text!r}: invalid name {part!r} of a cluster, role or environment",
                "Use letters, digits, '_', '-' and '.'; the first character must be a letter or '_'.",
            )
    if parts[0] == SPARK and len(parts) > 1:
        raise UsageError(f"{text!r}: jobs on Spark have neither roles nor environments", f"Write {SPARK}.")
    return ClusterAddress(*parts)


def connect_cluster(place: str) -> tuple[ClusterClient, ClusterAddress]:
    """Return the client of ``CLUSTER[/ROLE[/ENV]]`` and the parsed address.

    Raises:
        UsageError: The address is invalid, or is `spark`.
        NotFound: The cluster is unknown.
        Failure: The credentials cannot be read.
    """
    address = parse_cluster_address(place)
    return resolve_cluster(address.cluster), address


def resolve_cluster(name: str) -> ClusterClient:
    """Return the client of a cluster. Raises as ``connect_cluster``."""
    home = Home.of_user()
    if name == LOCAL:
        from heron_cli.local_clusters import LocalCluster

        return LocalCluster(home)
    if name == SLURM:
        from heron_cli.local_clusters import SlurmCluster

        return SlurmCluster(home)
    if name == SPARK:
        raise UsageError(
            f"{SPARK}: jobs on Spark are not topologies of a cluster",
            "Use `heron submit spark` to run one and `heron kill spark` to stop a streaming run.",
        )
    logins = read_credentials(home)
    login = logins.get(name)
    if login is None:
        known = (*HOME_CLUSTERS, *logins)
        raise NotFound(
            f"unknown cluster {name!r}{did_you_mean(name, known)}",
            f"Known: {listing(known)}. `heron login {name} --api URL` adds a cluster with an API server.",
        )
    from heron_cli.remote_cluster import RemoteCluster

    return RemoteCluster(name, login)
