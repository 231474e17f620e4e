"""What ``heron submit`` does beyond a dry run: from a definition with its plan to a topology that runs.

A file of its own, so that a dry run imports none of what asks clusters and starts processes.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from heron_cli.address import Address
from heron_cli.cluster import Cluster
from heron_cli.console import note, say
from heron_cli.fit import fit
from heron_cli.home import Home
from heron_cli.replacing import differences, goes_on
from heron_cli.wait import NotInTime, StateUnknown, wait_for_state
from heron_control.progress import Progress
from heron_control.submission.submission import Submission
from heron_runtime.failures import Failure, Interrupted, NotAllowed, NotFound
from heron_runtime.model.checkpoints import keeps_state
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
    """Submit, and see it run. What does not come up is killed again, but its logs are kept; what it has replaced is
    submitted again. A version that only needs longer goes on where it has replaced another one."""
    name = submission.definition.name
    before = cluster.running_version(address, name, submission.package.parent / "before") if replace else None
    for text in differences(before.definition, submission.definition) if before is not None else ():
        say(f"note: replacing {name} changes {text}")
    try:
        starter_lives = cluster.submit(submission, progress, replace=replace)
    except KeyboardInterrupt:
        rest = "what ran before goes on" if replace else "nothing runs"
        raise Interrupted(f"interrupted: {name} was not submitted, {rest}") from None
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
    except (StateUnknown, NotInTime) as error:
        if isinstance(error, NotInTime) and not replace:
            error.cure = _taken_back(cluster, address, name, progress)
            raise
        # It may run well, or be slow: what replaces another one is taken back only if it is known not to run.
        where = f"{address} {name}"
        error.cure = f"It is submitted. See `heron status {where}`, or end it with `heron kill {where}`."
        raise
    except Failure as error:
        error.cure = _taken_back(cluster, address, name, progress)
        if before is not None:
            error.cure += f"\n{_bring_back(cluster, address, before, progress, wait_timeout)}"
        raise


def _taken_back(cluster: Cluster, address: Address, name: str, progress: Progress) -> str:
    kept = _take_back(cluster, address, name, progress)
    return f"It was taken back. Its logs are kept in {kept}" if kept else "It was taken back."


def _bring_back(cluster: Cluster, address: Address, before: Submission, progress: Progress, wait_timeout: float) -> str:
    """Submit the version before again; returns what became of it."""
    name = before.definition.name
    progress(f"starting the version of {name} before")
    try:
        again = goes_on(before, address, _checkpoints(cluster, address, before))
        if again is None:
            return "The version before is not started again: it keeps state, and that was given up."
        lives = cluster.submit(again, progress)
        with cluster.session():
            wait_for_state(
                cluster, address, name, again.definition.id,
                timeout_secs=wait_timeout, progress=progress, starter_lives=lives,
            )  # fmt: skip
    except (Failure, OSError) as error:
        return f"The version before does not run again either: {error}"
    start = f", from checkpoint {again.start.reference}" if again.start is not None else ""
    return f"The version before runs again{start}."


def _checkpoints(cluster: Cluster, address: Address, before: Submission) -> list[dict[str, Any]]:
    return cluster.checkpoints(address, before.definition.name) if keeps_state(before.definition.config) else []


def _take_back(cluster: Cluster, address: Address, name: str, progress: Progress) -> str:
    try:
        try:
            return cluster.kill(address, name, progress, keep_logs=True)
        except NotAllowed:  # to keep logs: they are on the nodes, and go with the containers
            return cluster.kill(address, name, progress)
    except NotFound:
        note(f"somebody killed {name} meanwhile")
        return ""
