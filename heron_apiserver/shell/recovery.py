"""At the start: finish or remove what an earlier life of the api server left, then forget packages nobody refers to."""

from __future__ import annotations

import json
import logging
import shutil
from collections.abc import Iterator
from pathlib import Path

from heron_apiserver.core.recovery import Folder, RecoveryStep, decide, unused
from heron_apiserver.shell.audit import Audit
from heron_apiserver.shell.package_store import PackageStoreTrouble
from heron_apiserver.shell.replies import submitted
from heron_apiserver.shell.request_files import Requests
from heron_apiserver.shell.service import TopologyService
from heron_control.schedulers.topology_folder import TOPOLOGIES, load_launch
from heron_runtime.state import paths, topologies

log = logging.getLogger(__name__)


def recover(service: TopologyService, requests: Requests, audit: Audit) -> None:
    """Do it. Blocks; may be called again. Raises StoreError while the store does not answer.

    What cannot be finished with one topology is logged and does not keep the others waiting.
    """
    states = {s.topology: s for s in topologies.list_topologies(service.submissions.store)}
    stored = {name: state.topology_id for name, state in states.items()}
    unreadable = set(service.submissions.store.children(paths.EXECUTION_STATES)) - set(states)
    for folder, step in decide(list(_folders(service.config.home / TOPOLOGIES)), stored, unreadable):
        try:
            _carry_out(service, folder, step)
        except Exception:
            log.exception("%s of %s failed; it is tried again at the next start", step, folder.path)
            continue
        if step is not RecoveryStep.LEAVE:
            log.info("%s: %s", step, folder.path)
        if step not in (RecoveryStep.LEAVE, RecoveryStep.START):
            audit.write("recovery", who="heron_apiserver", source="", result=str(step), topology=folder.path)
    topologies.clear_orphans(service.submissions.store)
    requests.settle(
        stored,
        {s.topology_id: json.dumps(submitted(s.cluster, s.role, s.environ, s.topology)) for s in states.values()},
    )
    try:
        kept = service.packages.digests()
    except PackageStoreTrouble as trouble:
        log.warning("packages that nobody needs stay until the next start: %s", trouble)
        return
    for digest in unused(kept, list(_folders(service.config.home / TOPOLOGIES))):
        service.packages.remove_unless_held(digest)


def _carry_out(service: TopologyService, folder: Folder, step: RecoveryStep) -> None:
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
