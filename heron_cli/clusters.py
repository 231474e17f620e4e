"""Which clusters there are.

``local`` runs topologies on this machine, ``slurm`` as jobs of Slurm; every other name with an entry in
``credentials.json`` (``heron login``) is a cluster behind an api server.
"""

from __future__ import annotations

from heron_cli.address import LOCAL, OF_HOME, SLURM, SPARK, Address, parse_address
from heron_cli.cluster import Cluster
from heron_cli.credentials import read_credentials
from heron_cli.home import Home
from heron_runtime.failures import NotFound, UsageError, did_you_mean, listing


def cluster_at(place: str) -> tuple[Cluster, Address]:
    """The cluster of ``CLUSTER[/ROLE[/ENV]]``, and the whole address. Raises UsageError, NotFound, Failure."""
    address = parse_address(place)
    return cluster_named(address.cluster), address


def cluster_named(name: str) -> Cluster:
    """The cluster of this name. Raises NotFound, UsageError, Failure."""
    home = Home.of_user()
    if name == LOCAL:
        from heron_cli.local_cluster import LocalCluster

        return LocalCluster(home)
    if name == SLURM:
        from heron_cli.slurm_cluster import SlurmCluster

        return SlurmCluster(home)
    if name == SPARK:
        raise UsageError(
            f"{SPARK}: jobs on Spark are not topologies of a cluster",
            "Use `heron submit spark` to run one and `heron kill spark` to end a streaming run.",
        )
    logins = read_credentials(home)
    login = logins.get(name)
    if login is None:
        known = (*OF_HOME, *logins)
        raise NotFound(
            f"there is no cluster {name!r}{did_you_mean(name, known)}",
            f"There is {listing(known)}; `heron login {name} --api URL` adds a cluster behind an api server.",
        )
    from heron_cli.api_cluster import ApiCluster

    return ApiCluster(name, login)
