"""Recovery at the start: finish or remove what an earlier process left, then delete unused packages.

The state store decides. A folder whose submission is stored is finished: it takes its place, and the scheduler is
told to start it, which is idempotent. Any other folder belongs to an incomplete submit or an interrupted kill and is
removed. ``decide`` and ``unused`` are pure functions.
"""

from __future__ import annotations

import json
import logging
import shutil
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from heron_apiserver.audit import AuditLog
from heron_apiserver.package_store import PackageStoreError
from heron_apiserver.request_log import RequestLog
from heron_apiserver.responses import submitted_document
from heron_apiserver.topologies import PlacedTopologies
from heron_control.schedulers.known_store import check_store
from heron_control.schedulers.topology_folder import TOPOLOGIES, load_launch
from heron_runtime.state import paths, topologies


class RecoveryStep(StrEnum):
    """Action for one folder."""

    FINISH_SUBMIT = "finish submit"  # staged and stored
    START = "start"  # in its place and stored
    FINISH_KILL = "finish kill"  # in its place, and no longer in the store
    DISCARD = "discard"  # staged, and never stored
    LEAVE = "leave"  # kept logs, or an unreadable record of this name


@dataclass(frozen=True, slots=True)
class Folder:
    """A topology's folder in the home. ``topology_id`` is empty without a readable launch file."""

    path: str
    topology: str
    topology_id: str
    staged: bool
    package: str = ""


def plan_recovery(
    folders: Collection[Folder], stored: Mapping[str, str], unreadable: Collection[str] = ()
) -> list[tuple[Folder, RecoveryStep]]:
    """Return one step for each folder.

    Args:
        folders: folders of the home.
        stored: submission id of each topology in the store.
        unreadable: topologies whose records cannot be read; nothing of theirs is touched.
    """
    steps = []
    for folder in sorted(folders, key=lambda f: (not f.staged, f.path)):
        lives = bool(folder.topology_id) and stored.get(folder.topology) == folder.topology_id
        if folder.topology in unreadable:
            step = RecoveryStep.LEAVE
        elif folder.staged:
            step = RecoveryStep.FINISH_SUBMIT if lives else RecoveryStep.DISCARD
        elif not folder.topology_id:
            step = RecoveryStep.LEAVE
        else:
            step = RecoveryStep.START if lives else RecoveryStep.FINISH_KILL
        steps.append((folder, step))
    return steps


def unused_packages(packages: Collection[str], folders: Collection[Folder], held: Collection[str] = ()) -> list[str]:
    """Return the sorted digests that no folder refers to and no request holds."""
    used = {folder.package for folder in folders} | set(held)
    return sorted(set(packages) - used)


log = logging.getLogger(__name__)


def recover(service: PlacedTopologies, requests: RequestLog, audit: AuditLog) -> None:
    """Recover all topologies of the home. Blocks; may be called again.

    A failure with one topology is logged and does not delay the others.

    Raises:
        StoreReplaced: the store is another one than before. Nothing was removed.
        StoreError: the store does not answer.
    """
    states = {s.topology: s for s in topologies.list_topologies(service.submissions.store)}
    stored = {name: state.topology_id for name, state in states.items()}
    unreadable = set(service.submissions.store.children(paths.EXECUTION_STATES)) - set(states)
    check_store(service.submissions.store, service.config.home)  # after the reads: a lost store names no topology
    for folder, step in plan_recovery(list(_folders(service.config.home / TOPOLOGIES)), stored, unreadable):
        try:
            _carry_out(service, folder, step)
        except Exception:
            log.exception("%s of %s failed; will retry at the next start", step, folder.path)
            continue
        if step is not RecoveryStep.LEAVE:
            log.info("%s: %s", step, folder.path)
        if step not in (RecoveryStep.LEAVE, RecoveryStep.START):
            audit.write("recovery", who="heron_apiserver", source="", result=str(step), topology=folder.path)
    topologies.clear_orphans(service.submissions.store)
    requests.settle(
        stored,
        {
            s.topology_id: json.dumps(submitted_document(s.cluster, s.role, s.environ, s.topology))
            for s in states.values()
        },
    )
    try:
        kept = service.packages.digests()
    except PackageStoreError as error:
        log.warning("unused packages stay until the next start: %s", error)
        return
    for digest in unused_packages(kept, list(_folders(service.config.home / TOPOLOGIES))):
        service.packages.remove_unless_held(digest)


def _carry_out(service: PlacedTopologies, folder: Folder, step: RecoveryStep) -> None:
    path = Path(folder.path)
    launch = load_launch(path)
    if step is RecoveryStep.DISCARD:
        if launch is not None:
            service.submissions.scheduler.remove(launch)
        shutil.rmtree(path)
    if launch is None:
        return
    if step in (RecoveryStep.START, RecoveryStep.FINISH_SUBMIT):
        service.submissions.start(launch, path)
    if step is RecoveryStep.FINISH_KILL:
        service.submissions.clean_up(launch, path)


def _folders(root: Path) -> Iterator[Folder]:
    for path in sorted(root.glob("*/*/*/*")):
        if not path.is_dir():
            continue
        staged = path.name.startswith(".")
        topology = path.name[1:].rpartition(".")[0] if staged else path.name
        launch = load_launch(path)
        yield Folder(
            str(path), topology, launch.topology_id if launch else "", staged, launch.package_digest if launch else ""
        )
