"""What the api server does to topologies: submit, kill, restart. Blocking; one at a time for each name.

A submit prepares everything in a folder beside the topology's place; the transaction in the state store decides who
wins a name; what comes after it is undone with it if it fails. A crash at any point leaves what ``recovery`` finishes
or removes at the next start, by the same decision: the store has the submission, or it has not.
"""

from __future__ import annotations

import logging
import shutil
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from heron_apiserver.core.access import same
from heron_apiserver.core.submission import SubmitFields
from heron_apiserver.shell.packages import Packages
from heronry.failures import Failure, NotFound, Unavailable, topology_not_found
from heronry.inspection.inspector import Inspector, check_container, check_place
from heronry.launch import Launch
from heronry.model.plan import PackingPlan
from heronry.model.record import TopologyRecord
from heronry.model.settings import setting
from heronry.model.stored import ExecutionState
from heronry.model.topology import TopologyDefinition
from heronry.schedulers.runtime import runtime_dir
from heronry.schedulers.scheduler import Scheduler
from heronry.schedulers.topology_folder import (
    LAUNCH_FILE,
    load_launch,
    make_folder,
    place_of,
    remove_folder,
    staging_beside,
    take_place,
    write_secret,
)
from heronry.state import paths, topologies
from heronry.state.store import StateStore, StoreError
from heronry.state.topologies import AlreadyExists, NoSuchTopology
from heronry.version import VERSION

ALL = -1
LOCKS = 64  # names share these; a bound, whatever names clients think of
KILL_MARGIN_SECONDS = 30.0
log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Place:
    """What the service is about: its home, its cluster, the store's address, and where containers fetch their code."""

    home: Path
    cluster: str
    store_url: str
    store_credential: str = ""
    api_url: str = ""


@dataclass(frozen=True, slots=True)
class Code:
    """What a container may fetch, with the secret that lets it."""

    secret: str = field(repr=False)
    package: str


class TopologyService:
    """The topologies of one cluster. Thread-safe."""

    def __init__(self, place: Place, store: StateStore, scheduler: Scheduler, packages: Packages) -> None:
        self.place = place
        self.store = store
        self.scheduler = scheduler
        self.packages = packages
        self.inspector = Inspector(store, place.cluster)
        self.launches: dict[str, Launch] = {}  # by topology id, of those that stand in their place
        self._code: dict[str, Code] = {}
        self._locks = [threading.Lock() for _ in range(LOCKS)]

    # Submit.

    def submit(self, fields: SubmitFields, definition: TopologyDefinition, packing: PackingPlan, package: str) -> bool:
        """Run it; False if this very submission runs already. All or nothing.

        ``package`` is the digest of its code, which the caller holds. Raises AlreadyExists, NotFound, SchedulerError,
        StoreError, OSError, PackageError.
        """
        name = definition.name
        with self._locked(name):
            stored = self._stored(name)
            if stored is not None and stored.topology_id == definition.id:
                return False
            if stored is not None and not fields.replace:
                raise AlreadyExists(name)
            execution = self._execution(fields, definition)
            topologies.check_size(self.store, definition, packing, execution)
            launch, staging = self._stage(fields, definition, package)
            try:
                if fields.replace:
                    self._make_room(name, fields)
                topologies.submit(self.store, definition, packing, execution)
            except BaseException:
                self._undo(launch, staging)
                raise
            try:
                self.start(launch, staging)
            except BaseException:
                self._take_back(launch)
                self._undo(launch, staging)
                raise
        return True

    def start(self, launch: Launch, folder: Path) -> None:
        """Give a staged folder its place, if it has not got it, and have the scheduler start the containers."""
        place = self._folder(launch)
        if folder != place:
            take_place(folder, place)
        self._remember(launch, place)
        self.scheduler.start(launch, place / LAUNCH_FILE)

    def _stage(self, fields: SubmitFields, definition: TopologyDefinition, package: str) -> tuple[Launch, Path]:
        launch = Launch(
            fields.cluster, fields.role, fields.environ, definition.name, definition.id, self.place.store_url,
            home=str(self._place_of(fields.role, fields.environ, definition.name)),
            runtime_dir=str(runtime_dir(definition.id)), settings=dict(fields.settings),
            store_credential=self.place.store_credential, package_digest=package, api_url=self.place.api_url,
        )  # fmt: skip
        staging = staging_beside(self._folder(launch))
        path = self.packages.path(package)
        if path is None:
            raise NotFound(f"there is no package {package}", "Send the package with the request.")
        try:
            make_folder(staging)
            launch.save(staging / LAUNCH_FILE)  # before anything else is made: whoever finds it knows what to remove
            launch = self.scheduler.prepare(launch, staging, path)
            launch.save(staging / LAUNCH_FILE)
            write_secret(staging)
        except BaseException:
            self._undo(launch, staging)
            raise
        return launch, staging

    def _make_room(self, name: str, fields: SubmitFields) -> None:
        try:
            self._kill(name, fields.role, fields.environ, keep_logs=False)
        except NotFound:
            if self._stored(name) is not None:
                raise  # it is there, for somebody else

    def _execution(self, fields: SubmitFields, definition: TopologyDefinition) -> ExecutionState:
        return ExecutionState(
            definition.name, definition.id, fields.cluster, fields.role, fields.environ, fields.state,
            fields.user or fields.role, time.time(), VERSION,
            str(self._place_of(fields.role, fields.environ, definition.name)),
        )  # fmt: skip

    def _take_back(self, launch: Launch) -> None:
        """The name was won, but the start failed: the state goes, and whatever runs already."""
        try:
            topologies.kill(self.store, launch.topology, launch.topology_id)
            self.scheduler.kill(launch, KILL_MARGIN_SECONDS)
        except Exception:
            log.exception("%s is not all taken back; the next start does it", launch.topology)
            return
        self._undo(launch, self._folder(launch))

    def _undo(self, launch: Launch, folder: Path) -> None:
        """Remove what a submit has prepared. Nothing of it runs; but a namesake may, so nothing is killed here."""
        self._forget(launch.topology_id)
        try:
            self.scheduler.remove(launch)
        except Exception:
            log.exception("%s is not all removed; the next start does it", launch.topology)
        shutil.rmtree(folder, ignore_errors=True)

    # Kill.

    def kill(self, name: str, role: str, environ: str, *, keep_logs: bool = False) -> str:
        """End it; returns when nothing of it runs, and where its logs are kept. Finishes a kill that was interrupted.

        Raises NotFound, Unavailable, SchedulerError, StoreError.
        """
        with self._locked(name):
            return self._kill(name, role, environ, keep_logs=keep_logs)

    def _kill(self, name: str, role: str, environ: str, *, keep_logs: bool) -> str:
        execution = self._stored(name)
        if execution is not None:
            check_place(execution, self.place.cluster, role, environ)
        folder = self._place_of(role, environ, name)
        found = load_launch(folder)
        launch = found or self._lost_launch(name, role, environ, execution)
        if keep_logs:
            self.scheduler.hold(launch)
        was_there = topologies.kill(self.store, name, execution.topology_id if execution else None)
        if execution is None and found is None and not was_there:
            known = [state.topology for state in topologies.list_topologies(self.store)]
            raise topology_not_found(name, self.place.cluster, known)
        self.clean_up(launch, folder, keep_logs=keep_logs)
        logs = folder / "log-files"
        return str(logs) if keep_logs and logs.is_dir() else ""

    def clean_up(self, launch: Launch, folder: Path, *, keep_logs: bool = False) -> None:
        """Wait for the end of what runs, and remove folder, secret and package. Raises Unavailable, SchedulerError."""
        grace = 2 * setting(launch.settings, "heron.stop.grace.secs") + KILL_MARGIN_SECONDS
        if not self.scheduler.kill(launch, grace):
            raise Unavailable(f"{launch.topology} is killed, but something of it still stops", "Kill it again.")
        if keep_logs:
            self.scheduler.save_logs(launch, folder)
        self.scheduler.remove(launch)
        self._forget(launch.topology_id)
        remove_folder(folder, keep_logs=keep_logs)
        self.release(launch.package_digest)

    def release(self, package: str) -> None:
        """Remove a package, unless a topology refers to it or a request holds it."""
        if package and not any(launch.package_digest == package for launch in self.launches.values()):
            self.packages.remove_unless_held(package)

    def _lost_launch(self, name: str, role: str, environ: str, execution: ExecutionState | None) -> Launch:
        """What is known of a topology whose folder is gone."""
        topology_id = execution.topology_id if execution else name
        return Launch(
            self.place.cluster, role, environ, name, topology_id, self.place.store_url,
            str(self._place_of(role, environ, name)), str(runtime_dir(topology_id)),
        )  # fmt: skip

    # The rest.

    def find(self, name: str, role: str, environ: str) -> TopologyRecord:
        """A topology that runs there. Raises NotFound, StoreError."""
        return self.inspector.find(name, role, environ)

    def restart(self, record: TopologyRecord, container: int, timeout_seconds: float) -> tuple[int, ...]:
        """Stop and start one container, or all (-1). Raises NotFound, SchedulerError, Failure."""
        if container != ALL:
            check_container(record, container)
        launch = self.launches.get(record.definition.id)
        if launch is None:
            raise Failure(f"the folder of {record.definition.name} is gone", "`heron kill` cleans up.")
        return self.scheduler.restart(launch, container, timeout_seconds)

    def knows(self, topology_id: str, secret: str) -> bool:
        """True if this is the secret of that topology. Takes as long where there is no such topology."""
        code = self._code.get(topology_id)
        return same(secret, code.secret if code else "0" * 64) and code is not None

    def package_of(self, topology_id: str) -> str:
        """The digest of a topology's code; "" if there is no such topology."""
        code = self._code.get(topology_id)
        return code.package if code else ""

    def secret_of(self, topology_id: str) -> str | None:
        """A topology's secret; None if there is no such topology."""
        code = self._code.get(topology_id)
        return code.secret if code else None

    def adopt(self, launch: Launch) -> None:
        """A topology stands in its place, from an earlier life of this process."""
        self._remember(launch, self._folder(launch))

    def _remember(self, launch: Launch, folder: Path) -> None:
        self._code[launch.topology_id] = Code((folder / "secret").read_text().strip(), launch.package_digest)
        self.launches = {**self.launches, launch.topology_id: launch}

    def _forget(self, topology_id: str) -> None:
        self._code.pop(topology_id, None)
        self.launches = {key: launch for key, launch in self.launches.items() if key != topology_id}

    def _stored(self, name: str) -> ExecutionState | None:
        try:
            return topologies.read_topology(self.store, name).execution
        except NoSuchTopology:
            return None
        except StoreError:
            # A damaged record, or an absent store? The second raises again.
            if self.store.get(paths.execution_state(name)) is None:
                return None
            return next((s for s in topologies.list_topologies(self.store) if s.topology == name), None)

    def _folder(self, launch: Launch) -> Path:
        return self._place_of(launch.role, launch.environ, launch.topology)

    def _place_of(self, role: str, environ: str, name: str) -> Path:
        return place_of(self.place.home, self.place.cluster, role, environ, name)

    @contextmanager
    def _locked(self, name: str) -> Iterator[None]:
        with self._locks[hash(name) % LOCKS]:
            yield
