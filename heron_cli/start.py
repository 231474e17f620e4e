"""What ``heron submit`` does beyond a dry run: from a definition with its plan to a topology that runs.

A file of its own, so that a dry run imports none of what asks clusters and starts processes.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from heron_cli.address import Address
from heron_cli.cluster import Cluster
from heron_cli.console import note
from heron_cli.fit import fit
from heron_cli.home import Home
from heron_cli.wait import StateUnknown, wait_for_state
from heron_control.progress import Progress
from heron_control.submission.submission import Submission
from heron_runtime.failures import Failure, Interrupted, NotAllowed, NotFound
from heron_runtime.model.settings import STATE_KEYS


def fit_to(cluster: Cluster, package: Path, home: Home, progress: Progress) -> None:
    """Make the package one that the cluster's containers can import, if they are of another kind. Raises
    InvalidTopology."""
    target = cluster.target()
    if target is not None:
        fit(package, target, cluster.name, home.root / "cache", progress)


def settings_of(values: dict[str, Any]) -> dict[str, Any]:
    """What is the operator's, without what is the cluster's own."""
    return {key: value for key, value in values.items() if key.startswith("heron.") and key not in STATE_KEYS}


def run(
    cluster: Cluster,
    address: Address,
    submission: Submission,
    progress: Progress,
    *,
    replace: bool,
    wait: bool,
    wait_timeout: float,
) -> None:
    """Submit, and see it run. What does not come up is killed again, but its logs are kept."""
    name = submission.definition.name
    try:
        starter_lives = cluster.submit(submission, progress, replace=replace)
    except KeyboardInterrupt:
        before = "what ran before goes on" if replace else "nothing runs"
        raise Interrupted(f"interrupted: {name} was not submitted, {before}") from None
    if not wait:
        return
    try:
        with cluster.session():
            wait_for_state(
                cluster, address, name, submission.definition.id,
                timeout_secs=wait_timeout, progress=progress, starter_lives=starter_lives,
            )  # fmt: skip
    except KeyboardInterrupt:
        where = f"{address} {name}"
        raise Interrupted(
            f"interrupted: {name} is submitted and goes on starting",
            f"See `heron status {where}`, or end it with `heron kill {where}`.",
        ) from None
    except StateUnknown as error:  # it may run well: only a topology that is known not to run is taken back
        where = f"{address} {name}"
        error.cure = f"It is submitted. See `heron status {where}`, or end it with `heron kill {where}`."
        raise
    except Failure as error:
        kept = _take_back(cluster, address, name, progress)
        error.cure = f"It was taken back. Its logs are kept in {kept}" if kept else "It was taken back."
        raise


def _take_back(cluster: Cluster, address: Address, name: str, progress: Progress) -> str:
    try:
        try:
            return cluster.kill(address, name, progress, keep_logs=True)
        except NotAllowed:  # to keep logs: they are on the nodes, and go with the containers
            return cluster.kill(address, name, progress)
    except NotFound:
        note(f"somebody killed {name} meanwhile")
        return ""
