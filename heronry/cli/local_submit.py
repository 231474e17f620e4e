"""Submitting to the ``local`` cluster: all or nothing.

Everything is prepared in a folder beside the topology's place, so that two who submit the same name at once cannot mix
their files. The transaction in the state store decides who wins. What comes after it (giving the folder its name,
starting the scheduler) is undone with the transaction if it fails or is interrupted.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from pathlib import Path

from heronry.cli import local_kill
from heronry.cli.address import user
from heronry.cli.clusters import Submission, Talk
from heronry.cli.home import Home
from heronry.launch import Launch
from heronry.model.stored import ExecutionState
from heronry.schedulers.local import LocalScheduler
from heronry.schedulers.runtime import make_runtime_dir, runtime_dir
from heronry.schedulers.topology_folder import (
    LAUNCH_FILE,
    LOG_FILES,
    METRICS,
    PACKAGE,
    make_folder,
    staging_beside,
    take_place,
    write_secret,
)
from heronry.state import paths, topologies
from heronry.state.local import STATE_KEYS
from heronry.state.store import StateStore
from heronry.state.topologies import AlreadyExists
from heronry.version import VERSION


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
    staging = staging_beside(place)
    launch = Launch(
        address.cluster,
        address.role,
        address.environ,
        definition.name,
        definition.id,
        home.store.url,
        str(place),
        str(runtime),
        settings={key: value for key, value in submission.settings.items() if key not in STATE_KEYS},
        store_credential=home.store.credential_file,
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
        take_place(staging, place)
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
    """The topology's folder as it will be: package, empty folders, secret, launch.json."""
    make_folder(staging)
    for name in (LOG_FILES, METRICS):
        (staging / name).mkdir(mode=0o700)
    shutil.move(package, staging / PACKAGE)
    write_secret(staging)
    launch.save(staging / LAUNCH_FILE)
