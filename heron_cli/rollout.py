"""Submit a topology, wait until it runs, and roll back a version that does not.

While ``heron submit --replace`` waits, the code of the previous version is kept beside the package of the new one. If
the processes of the new version keep dying, it is killed and the previous version is submitted again. A version with
state resumes from its last checkpoint, which the drain has kept under the name ``upgrade-NUMBER``.

``heron submit`` imports this module only when it is not a dry run.
"""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from heron_cli.cluster_client import ClusterClient
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
from heron_control.packing.runtime_settings import changed_settings
from heron_control.progress import Progress
from heron_control.schedulers.topology_folder import PACKAGE, load_launch
from heron_control.submission.submission import StartFrom, StateHandover, Submission
from heron_runtime.failures import Failure, Interrupted, InvalidTopology, NotAllowed, NotFound, listing
from heron_runtime.model.checkpoints import keeps_state
from heron_runtime.model.plan import PackingPlan
from heron_runtime.model.records import TopologyRecord
from heron_runtime.model.settings import STATE_KEYS
from heron_runtime.model.topology import TopologyDefinition, TopologyState
from heronry.api.errors import PackageError

UPGRADE_PREFIX = "upgrade-"


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
        if before is not None:
            error.cure += f"\n{_roll_back(cluster, address, before, progress, wait_timeout)}"
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
    definition = replace(record.definition, id=f"{record.definition.name}-{secrets.token_hex(8)}")
    stored = record.execution
    return Submission(
        definition, record.packing, folder, stored.role, stored.environ, stored.submission_user, stored.state,
        launch.settings, launch.package_digest,
    )  # fmt: skip


def _link_or_copy(source: str, target: str) -> None:
    """Create a hard link, or a copy where the file system has no hard links."""
    try:
        os.link(source, target, follow_symlinks=False)
    except OSError:
        shutil.copy2(source, target, follow_symlinks=False)


def with_upgrade_checkpoint(
    before: Submission, address: ClusterAddress, checkpoints: Iterable[Mapping[str, Any]]
) -> Submission | None:
    """Return the submission that starts from the newest upgrade checkpoint.

    A topology without state is returned unchanged. None if the topology keeps state and no such checkpoint exists.
    """
    if not keeps_state(before.definition.config):
        return before
    names = [str(row.get("name") or "") for row in checkpoints]
    suffixes = [name.removeprefix(UPGRADE_PREFIX) for name in names]
    numbers = [int(suffix) for suffix in suffixes if suffix.isdecimal()]
    if not numbers:
        return None
    reference = f"{address}/{before.definition.name}@{UPGRADE_PREFIX}{max(numbers)}"
    return replace(before, start=StartFrom(reference))


def describe_changes(before: TopologyDefinition, after: TopologyDefinition) -> list[str]:
    """Return the parallelism and settings that a replacement changes, set by the program or by ``heron update``."""
    parallelism = {spec.name: spec.parallelism for spec in after.components}
    texts = [
        f"{spec.name}: {spec.parallelism} tasks before, {parallelism[spec.name]} now"
        for spec in before.components
        if spec.name in parallelism and parallelism[spec.name] != spec.parallelism
    ]
    common = replace(before, components=tuple(spec for spec in before.components if spec.name in parallelism))
    for change in changed_settings(common, after):
        where = f"{change['component']}: " if change["component"] else ""
        texts.append(f"{where}{change['key']}: {change['from']!r:.60} before, {change['to']!r:.60} now")
    for key in sorted(set(before.config) - set(after.config)):
        texts.append(f"{key}: {before.config[key]!r:.60} before, not set now")
    return texts


def _withdraw(cluster: ClusterClient, address: ClusterAddress, name: str, progress: Progress) -> str:
    """Kill a topology that does not run. Returns the note for the user."""
    logs = _kill_keeping_logs(cluster, address, name, progress)
    return f"It was withdrawn. Its logs are kept in {logs}" if logs else "It was withdrawn."


def _roll_back(
    cluster: ClusterClient, address: ClusterAddress, before: Submission, progress: Progress, wait_timeout: float
) -> str:
    """Submit the previous version again. Returns the note for the user."""
    name = before.definition.name
    progress(f"starting the previous version of {name}")
    try:
        again = with_upgrade_checkpoint(before, address, _checkpoints(cluster, address, before))
        if again is None:
            return "The previous version is not started again: its state was discarded."
        starter_lives = cluster.submit(again, progress)
        with cluster.session():
            wait_for_state(
                cluster, address, name, again.definition.id,
                timeout_secs=wait_timeout, progress=progress, starter_lives=starter_lives,
            )  # fmt: skip
    except (Failure, OSError) as error:
        return f"The previous version does not run either: {error}"
    start = f", from checkpoint {again.start.reference}" if again.start is not None else ""
    return f"The previous version runs again{start}."


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
