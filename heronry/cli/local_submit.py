"""Submitting to the ``local`` cluster: all or nothing.

Everything is prepared in a folder beside the topology's place, so that two who submit the same name at once cannot mix
their files. The transaction in the state store decides who wins. What comes after it (giving the folder its name,
starting the scheduler) is undone with the transaction if it fails or is interrupted.
"""

from __future__ import annotations

import os
import secrets
import shutil
import time
from collections.abc import Callable
from pathlib import Path

from heronry.cli import local_kill
from heronry.cli.address import user
from heronry.cli.clusters import Submission, Talk
from heronry.cli.home import Home, make_runtime_dir, runtime_dir
from heronry.launch import Launch
from heronry.model.stored import ExecutionState
from heronry.schedulers.local import LocalScheduler
from heronry.state import paths, topologies
from heronry.state.store import StateStore
from heronry.state.topologies import AlreadyExists
from heronry.version import VERSION

LAUNCH_FILE = "launch.json"
PREVIOUS_LOGS = "previous"


def submit(
    home: Home, store: StateStore, submission: Submission, talk: Talk, make_room: Callable[[], None] | None = None
) -> int:
    """Stage, write, start; returns the scheduler's process id. Raises AlreadyExists and what its parts raise.

    ``make_room`` ends a topology of this name; it is called when everything is staged.
    """
    definition = submission.definition
    if make_room is None and store.get(paths.execution_state(definition.name)) is not None:
        raise AlreadyExists(definition.name)  # told before pip works for a minute; the transaction decides
    address = submission.address
    place = home.topology(address.cluster, address.role, address.environ, definition.name)
    runtime = runtime_dir(definition.id)
    staging = place.with_name(f".{definition.name}.{secrets.token_hex(4)}")
    launch = Launch(
        address.cluster,
        address.role,
        address.environ,
        definition.name,
        definition.id,
        home.state_url,
        str(place),
        str(runtime),
        settings=dict(submission.settings),
    )
    try:
        _stage(staging, launch, submission.package)
        make_runtime_dir(runtime)
        if make_room is not None:
            make_room()
        talk("writing the state")
        topologies.submit(store, definition, submission.packing, _execution_state(submission, place))
    except BaseException:
        shutil.rmtree(staging, ignore_errors=True)
        shutil.rmtree(runtime, ignore_errors=True)
        raise
    try:
        _take_place(staging, place)
        talk("starting the containers")
        return LocalScheduler().start(launch, place / LAUNCH_FILE)
    except BaseException:
        topologies.kill(store, definition.name, definition.id)
        local_kill.clean_up(launch, talk)
        shutil.rmtree(staging, ignore_errors=True)
        raise


def _execution_state(submission: Submission, place: Path) -> ExecutionState:
    return ExecutionState(
        submission.definition.name,
        submission.definition.id,
        submission.address.cluster,
        submission.address.role,
        submission.address.environ,
        submission.state,
        user(),
        time.time(),
        VERSION,
        str(place),
    )


def _stage(staging: Path, launch: Launch, package: Path) -> None:
    """The topology's folder as it will be: package, empty folders, secret (0400), launch.json."""
    above = [folder for folder in staging.parents if not folder.exists()]
    for folder in (*reversed(above), staging, staging / "log-files", staging / "metrics"):
        folder.mkdir(mode=0o700, exist_ok=folder in above)  # mkdir(parents=True) would leave those above open to all
    shutil.move(package, staging / "package")
    descriptor = os.open(staging / "secret", os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o400)
    with os.fdopen(descriptor, "w") as file:
        file.write(secrets.token_hex(32))
    launch.save(staging / LAUNCH_FILE)


def _take_place(staging: Path, place: Path) -> None:
    """Give the staged folder its name. What an earlier topology of this name left there goes, but its logs are kept."""
    kept = place / "log-files"
    if kept.is_dir():
        shutil.rmtree(kept / PREVIOUS_LOGS, ignore_errors=True)
        os.rename(kept, staging / "log-files" / PREVIOUS_LOGS)
    if place.exists():
        shutil.rmtree(place)
    os.rename(staging, place)
