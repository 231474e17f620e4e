"""Submit a topology, wait until it runs, and roll back a version that does not.

While ``heron submit --replace`` waits, the code of the previous version is kept beside the package of the new one. If
the processes of the new version keep dying, it is killed and the previous version is submitted again. A version with
state resumes from its last checkpoint, which the drain has kept under the name ``upgrade-NUMBER``.

``heron submit`` imports this module only when it is not a dry run.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from heron_cli.cluster_client import ClusterClient, server_lives
from heron_cli.clusters import ClusterAddress, user_role
from heron_cli.console import print_detail, print_message
from heron_cli.home import Home
from heron_cli.wait import TopologyStartTimeout, TopologyStateUnknown, wait_for_state
from heron_control.packaging.package import open_staged_package
from heron_control.packaging.requirements import (
    TargetPlatform,
    find_incompatible_modules,
    install_requirements,
    is_compatible,
    pip_arguments,
)
from heron_control.progress import Progress
from heron_control.schedulers.topology_folder import PACKAGE, load_launch
from heron_control.submission.previous_version import describe_changes, submission_of, with_upgrade_checkpoint
from heron_control.submission.submission import StartFrom, StateHandover, Submission
from heron_runtime.failures import Failure, Interrupted, InvalidTopology, NotAllowed, NotFound, listing
from heron_runtime.model.checkpoints import keeps_state
from heron_runtime.model.plan import PackingPlan
from heron_runtime.model.records import TopologyRecord
from heron_runtime.model.settings import STATE_KEYS
from heron_runtime.model.topology import TopologyDefinition, TopologyState
from heronry.api.errors import PackageError


def fit_package(cluster: ClusterClient, package: Path, home: Home, progress: Progress) -> None:
    """Make the staged package importable for the containers of the cluster. Raises InvalidTopology."""
    target = cluster.target()
    if target is not None:
        fit_to_target(package, target, cluster.name, home.root / "cache", progress)


def fit_to_target(package: Path, target: TargetPlatform, cluster: str, cache: Path, progress: Progress) -> None:
    """Install the requirements of the staged package for another platform, if it differs from this one.

    The definition was evaluated with the requirements of this interpreter; the containers may get another installation.

    Raises:
        InvalidTopology: The target cannot import the package.
    """
    package_files = open_staged_package(package)
    submit_elsewhere = f"submit from Python {target.python} on {target.system} {target.machine}."
    if package_files.requirements is not None and not is_compatible(target):
        progress(f"fetching {package_files.requirements.name} for {target}")
        try:
            install_requirements(package_files, cache, pip_arguments=pip_arguments(target))
        except PackageError as error:
            raise InvalidTopology(
                f"the containers of {cluster} run {target}; {error}",
                "Only wheels can be installed for another interpreter: choose versions that have one, or "
                f"{submit_elsewhere}",
            ) from error
    not_importable = find_incompatible_modules(package, target)
    if not_importable:
        raise InvalidTopology(
            f"the containers of {cluster} run {target} and cannot import {listing(not_importable, 5)}",
            f"Name compiled modules in requirements.txt instead of packing them, or {submit_elsewhere}",
        )


def make_submission(
    definition: TopologyDefinition,
    packing: PackingPlan,
    package: Path,
    address: ClusterAddress,
    values: Mapping[str, Any],
    *,
    paused: bool,
    start: StartFrom | None,
    handover: StateHandover | None,
) -> Submission:
    """Return a submission of this user.

    Args:
        definition: The topology.
        packing: Its packing plan.
        package: Folder of the staged package.
        address: Role and environment of the topology.
        values: Settings of the cluster and of the command line. Those of the operator (``heron.*``) are submitted,
            except those that apply to the whole cluster.
        paused: Start with paused spouts.
        start: Checkpoint to start from.
        handover: How to migrate the state of the topology that is replaced.
    """
    settings = {key: value for key, value in values.items() if key.startswith("heron.") and key not in STATE_KEYS}
    state = TopologyState.PAUSED if paused else TopologyState.RUNNING
    return Submission(
        definition, packing, package, address.role, address.environ, user_role(), state, settings,
        start=start, handover=handover,
    )  # fmt: skip


def submit_and_wait(
    cluster: ClusterClient,
    address: ClusterAddress,
    submission: Submission,
    progress: Progress,
    *,
    replace: bool,
    wait: bool,
    wait_timeout: float,
) -> None:
    """Submit a topology and wait until it runs.

    A topology that does not run is killed, its logs are kept, and the version that it replaced is submitted again. A
    replacement that only needs longer is left running.

    Args:
        cluster: Where to submit.
        address: Role and environment of the topology.
        submission: The topology.
        progress: Shows the current step.
        replace: Replace a running topology of this name.
        wait: Wait until the topology runs.
        wait_timeout: Longest wait in seconds.

    Raises:
        Interrupted: Ctrl-C. The message says whether the topology was submitted.
        Failure: The topology was not submitted, or does not run.
    """
    name = submission.definition.name
    before = cluster.copy_running_version(address, name, submission.package.parent / "before") if replace else None
    for text in describe_changes(before.definition, submission.definition) if before is not None else ():
        print_message(f"note: replacing {name} changes {text}")
    try:
        starter_lives = cluster.submit(submission, progress, replace=replace)
    except KeyboardInterrupt:
        rest = "the previous version continues" if replace else "nothing runs"
        raise Interrupted(f"interrupted: {name} was not submitted, {rest}") from None
    if not wait:
        return
    commands = f"`heron status {address} {name}`, or stop it with `heron kill {address} {name}`"
    try:
        with cluster.session():
            wait_for_state(
                cluster, address, name, submission.definition.id,
                timeout_secs=wait_timeout, progress=progress, starter_lives=starter_lives,
            )  # fmt: skip
    except KeyboardInterrupt:
        raise Interrupted(f"interrupted: {name} is submitted and continues to start", f"See {commands}.") from None
    except (TopologyStateUnknown, TopologyStartTimeout) as error:
        if isinstance(error, TopologyStartTimeout) and not replace:
            error.cure = _withdraw(cluster, address, name, progress)
            raise
        # It may run or be slow: a replacement is withdrawn only if it certainly does not run.
        error.cure = f"It is submitted. See {commands}."
        raise
    except Failure as error:
        error.cure = _withdraw(cluster, address, name, progress)
        if replace:
            error.cure += _roll_back(cluster, address, name, before, progress, wait_timeout)
        raise


def copy_version(record: TopologyRecord, folder: Path) -> Submission | None:
    """Return a submission of a running topology with a copy of its code in the new `folder`.

    Returns:
        The submission, None if the code is gone.

    Raises:
        OSError: The code cannot be copied.
    """
    home = Path(record.execution.home)
    launch = load_launch(home)
    if launch is None or not (home / PACKAGE).is_dir():
        return None
    shutil.copytree(home / PACKAGE, folder, symlinks=True, copy_function=_link_or_copy)
    return submission_of(record, launch, folder)


def _link_or_copy(source: str, target: str) -> None:
    """Create a hard link, or a copy where the file system has no hard links."""
    try:
        os.link(source, target, follow_symlinks=False)
    except OSError:
        shutil.copy2(source, target, follow_symlinks=False)


def _withdraw(cluster: ClusterClient, address: ClusterAddress, name: str, progress: Progress) -> str:
    """Kill a topology that does not run. Returns the note for the user."""
    logs = _kill_keeping_logs(cluster, address, name, progress)
    return f"It was withdrawn. Its logs are kept in {logs}" if logs else "It was withdrawn."


def _roll_back(
    cluster: ClusterClient,
    address: ClusterAddress,
    name: str,
    before: Submission | None,
    progress: Progress,
    wait_timeout: float,
) -> str:
    """Start the previous version again. Returns the note for the user, "" without a previous version."""
    progress(f"starting the previous version of {name}")
    starter_lives: Callable[[], bool] = server_lives
    try:
        if before is None:
            started = cluster.start_previous_version(address, name)
            if started is None:
                return ""
            topology_id, reference = started
        else:
            again = with_upgrade_checkpoint(before, str(address), _checkpoints(cluster, address, before))
            if again is None:
                return "\nThe previous version is not started again: its state was discarded."
            topology_id, reference = again.definition.id, again.start.reference if again.start is not None else ""
            starter_lives = cluster.submit(again, progress)
        with cluster.session():
            wait_for_state(
                cluster, address, name, topology_id,
                timeout_secs=wait_timeout, progress=progress, starter_lives=starter_lives,
            )  # fmt: skip
    except (Failure, OSError) as error:
        return f"\nThe previous version does not run either: {error}"
    start = f", from checkpoint {reference}" if reference else ""
    return f"\nThe previous version runs again{start}."


def _checkpoints(cluster: ClusterClient, address: ClusterAddress, before: Submission) -> list[dict[str, Any]]:
    return cluster.checkpoints(address, before.definition.name) if keeps_state(before.definition.config) else []


def _kill_keeping_logs(cluster: ClusterClient, address: ClusterAddress, name: str, progress: Progress) -> str:
    try:
        try:
            return cluster.kill(address, name, progress, keep_logs=True)
        except NotAllowed:  # the logs are on the nodes and go with the containers
            return cluster.kill(address, name, progress)
    except NotFound:
        print_detail(f"{name} was killed by another command")
        return ""
