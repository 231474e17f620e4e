"""Submission, kill, restart and update of topologies, over a state store and a scheduler. Blocking.

Operations on the same name are serialized. A submission is prepared in a staging folder next to the topology's folder,
so that two submissions of one name cannot mix their files. The transaction in the state store decides which one gets
the name. If a later step fails or is interrupted, the transaction is undone. A crash at any point leaves a folder that
can be completed or removed by the same criterion: the store has the submission, or it does not.

A kill begins with the transaction as well. Then it waits until all processes have ended, and removes the rest. An
interrupted kill is completed by the next one.
"""

from __future__ import annotations

import dataclasses
import logging
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from weakref import WeakValueDictionary

from heron_control.inspection.inspector import Inspector, check_container, check_place, missing
from heron_control.packing.update import PlannedUpdate, UpdateRequest
from heron_control.progress import Progress, silent
from heron_control.schedulers.grants import Granted, all_granted, amount_of, write_granted
from heron_control.schedulers.runtime import runtime_dir
from heron_control.schedulers.scheduler import ALL, Scheduler, WatchingScheduler
from heron_control.schedulers.topology_folder import (
    LAUNCH_FILE,
    LOG_FILES,
    STORE_CREDENTIAL_FILE,
    draw_store_credential,
    load_launch,
    make_folder,
    place_of,
    remove_folder,
    staging_beside,
    store_credential_in,
    take_place,
    with_store,
    with_store_id,
    write_secrets,
)
from heron_control.submission.checkpoint_adoption import CheckpointCopy, CheckpointSource, adopt_files, check_reachable
from heron_control.submission.checkpoint_catalog import CheckpointCatalog
from heron_control.submission.stateful_replacement import defer_interrupt, drain, plan_replacement
from heron_control.submission.submission import ClusterConfig, Submission
from heron_control.submission.topology_update import TopologyUpdate
from heron_runtime.failures import Failure, Interrupted, NotFound
from heron_runtime.launch import Launch
from heron_runtime.model.plan import PackingPlan
from heron_runtime.model.records import ExecutionState, TopologyRecord
from heron_runtime.model.settings import Keys, setting
from heron_runtime.model.topology import TopologyDefinition
from heron_runtime.state import paths, topologies
from heron_runtime.state.credential import read_credential
from heron_runtime.state.store import Foldered, StateStore, StoreError, StoreForbidden, store_identity
from heron_runtime.state.topologies import AlreadyExists, NoSuchTopology
from heron_runtime.state.wrappers import check_fence
from heronry.version import VERSION

log = logging.getLogger(__name__)


class SubmissionService:
    """Topologies of one cluster. Thread-safe.

    ``placed`` is called for each topology after its folder has its final path and before it is started. ``removed`` is
    called for each removed topology.
    """

    def __init__(
        self,
        config: ClusterConfig,
        store: StateStore,
        scheduler: Scheduler,
        placed: Callable[[Launch, Path], None] = lambda _, __: None,
        removed: Callable[[Launch], None] = lambda _: None,
    ) -> None:
        self.config = config
        self.store = store
        self.scheduler = scheduler
        self._placed = placed
        self._removed = removed
        self.checkpoints = CheckpointCatalog(config, store)
        self._granting = threading.Lock()
        self._naming = threading.Lock()
        self._locks = WeakValueDictionary[str, threading.Lock]()  # by name, while an operation on it is in progress

    # Submit.

    def submit(
        self,
        submission: Submission,
        progress: Progress = silent,
        *,
        replace: bool = False,
        note: Callable[[str], None] = lambda _: None,
    ) -> int | None:
        """Submit a topology completely or not at all.

        ``replace`` kills a running topology of this name once everything else is prepared; ``stateful_replacement``
        describes what happens to its state. ``note`` receives recovery commands in case this process is killed. Also
        raises what ``checkpoint_adoption`` and ``stateful_replacement`` do.

        Returns:
            None if this submission already runs, otherwise the result of ``Scheduler.start``.

        Raises:
            AlreadyExists: The name is taken.
            NotFound: The topology to replace does not run.
            QuotaSpent: The cluster's quota is exceeded.
            SchedulerError: The scheduler fails.
            StoreError: The store is unavailable.
            OSError: A file cannot be written.
            PackageError: The package is refused.
        """
        definition = submission.definition
        with self._locked(definition.name):
            stored = self._stored(definition.name)
            if stored is not None and stored.topology_id == definition.id:
                return None
            if stored is not None and not replace:
                raise AlreadyExists(definition.name)  # fail early, before anything is prepared; the transaction decides
            upgrade = None
            if stored is not None and submission.handover is not None and submission.start is None:
                inspector = Inspector(self.store, self.config.homes)
                upgrade = plan_replacement(self.checkpoints, self.store, inspector, submission, note)
            place = self._place_of(submission.role, submission.environ, definition.name)
            start = self.checkpoints.find(submission.start, definition) if submission.start is not None else None
            execution = self._execution(submission, place)
            topologies.check_size(self.store, definition, submission.packing, execution)
            prepared = Prepared(self._launch(submission, place), staging_beside(place), submission, execution)
            try:
                prepared.launch = self._stage(prepared.launch, prepared.staging, submission)
                if upgrade is not None or start is not None:
                    check_reachable(prepared.launch, place, definition)
                if upgrade is not None:
                    start = upgrade.take(progress)
                if start is not None:
                    prepared.adopt(start, self.scheduler, progress)
                if upgrade is not None:
                    upgrade.check_still()
            except BaseException:
                prepared.undo(self.scheduler)
                if upgrade is not None:
                    upgrade.give_up(progress)
                raise
            if upgrade is None:
                return self._exchange(prepared, progress, replace=replace)
            with defer_interrupt(definition.name):
                try:
                    return self._exchange(prepared, progress, replace=replace)
                except Exception as error:
                    raise upgrade.failed(error, progress) from error

    def _exchange(self, prepared: Prepared, progress: Progress, *, replace: bool) -> int:
        """Replace the running topology by the prepared one."""
        submission = prepared.submission
        name = submission.definition.name
        try:
            if replace:
                self._make_room(submission, progress)
            progress("writing the state")
            topologies.submit(self.store, submission.definition, submission.packing, prepared.execution)
        except BaseException:
            prepared.undo(self.scheduler)
            raise
        try:
            topologies.clear(self.store, name)  # nodes left by an earlier topology of this name, with its access rights
            progress("starting the containers")
            return self.start(prepared.launch, prepared.staging)
        except BaseException:
            self._take_back(prepared, progress)
            raise

    def start(self, launch: Launch, folder: Path) -> int:
        """Move a staged folder to its final path, unless it is there, and start the containers."""
        place = self.place_of(launch)
        if folder != place:
            check_fence(self.store)
            with self._granting:  # a folder that is renamed while the grants are summed up would be missed
                take_place(folder, place)
        if self._guarded:
            launch = with_store(launch, place, self.config.store.url)
            own = store_credential_in(place, read_credential(self.config.store.credential_file))
            # A scheduler that watches containers belongs to the control plane. Any other is a process of the topology.
            schedules = not isinstance(self.scheduler, WatchingScheduler)
            topologies.admit(self.store, launch.topology, own.identity, schedules=schedules)
        launch = with_store_id(launch, place, store_identity(self.store, create=True))
        self._placed(launch, place)
        return self.scheduler.start(launch, place / LAUNCH_FILE)

    @property
    def _guarded(self) -> bool:
        """Return True if the store enforces access rights."""
        return bool(self.config.store.credential_file) and isinstance(self.store, Foldered)

    def _execution(self, submission: Submission, place: Path) -> ExecutionState:
        definition = submission.definition
        return ExecutionState(
            definition.name, definition.id, self.config.cluster, submission.role, submission.environ, submission.state,
            submission.user, time.time(), VERSION, str(place),
        )  # fmt: skip

    def _launch(self, submission: Submission, place: Path) -> Launch:
        definition, store = submission.definition, self.config.store
        return Launch(
            self.config.cluster, submission.role, submission.environ, definition.name, definition.id, store.url,
            str(place), str(runtime_dir(definition.id)), settings=dict(submission.settings),
            store_credential=str(place / STORE_CREDENTIAL_FILE) if self._guarded else "",
            package_digest=submission.package_digest,
        )  # fmt: skip

    def _stage(self, launch: Launch, staging: Path, submission: Submission) -> Launch:
        make_folder(staging)
        launch.save(staging / LAUNCH_FILE)  # written first, so that a crash leaves a record of the rest
        with self._granting:  # concurrent submissions must not both get the remaining quota
            others = all_granted(self.config.homes, apart_from=self.place_of(launch))
            granted = Granted(submission.definition, submission.packing)
            self.config.quota.check(others, amount_of(granted))
            write_granted(staging, granted)
        if self._guarded:
            operators = read_credential(self.config.store.credential_file)
            draw_store_credential(staging, operators, launch.topology_id)
        launch = self.scheduler.prepare(launch, staging, submission.package)
        launch.save(staging / LAUNCH_FILE)
        write_secrets(staging)
        return launch

    def _make_room(self, submission: Submission, progress: Progress) -> None:
        name = submission.definition.name
        try:
            self._kill(name, submission.role, submission.environ, progress)
        except NotFound:
            if self._stored(name) is not None:
                raise  # it exists, but under another role or environment

    def _take_back(self, prepared: Prepared, progress: Progress) -> None:
        """Undo the transaction and end what already runs, after a failed start."""
        launch = prepared.launch
        try:
            topologies.kill(self.store, launch.topology, launch.topology_id)
            self.clean_up(launch, self.place_of(launch), progress)
            topologies.clear(self.store, launch.topology)
            if prepared.adoption is not None:
                prepared.adoption.undo()
        except Exception:
            log.exception("%s is not fully reverted; `heron kill` or the next start completes that", launch.topology)
            return
        shutil.rmtree(prepared.staging, ignore_errors=True)

    # Kill.

    def kill(
        self,
        name: str,
        role: str,
        environ: str,
        progress: Progress = silent,
        *,
        keep_logs: bool = False,
        insist: bool = False,
    ) -> str:
        """Kill a topology and return where its logs are kept. Completes an interrupted kill.

        ``insist`` kills even if the store accepts no writes.

        Raises:
            NotFound: The topology does not run.
            Interrupted: The user has interrupted the wait.
            SchedulerError: The scheduler fails.
            StoreError: The store is unavailable.
        """
        with self._locked(name):
            return self._kill(name, role, environ, progress, keep_logs=keep_logs, insist=insist)

    def _kill(
        self, name: str, role: str, environ: str, progress: Progress, *, keep_logs: bool = False, insist: bool = False
    ) -> str:
        stored = self._stored(name, insist=insist)
        if stored is not None:
            check_place(stored, self.config.cluster, role, environ)
        folder = self._folder_of(stored, self._place_of(role, environ, name))
        stored_launch = load_launch(folder)
        launch = stored_launch or self._lost_launch(name, role, environ, stored)
        topology_id = stored.topology_id if stored else None
        if keep_logs and (stored is not None or stored_launch is not None):
            self.scheduler.hold(launch)
        try:
            was_there = topologies.kill(self.store, name, topology_id)
        except StoreError as error:
            if stored_launch is None or not insist:
                raise
            # For example a full disk. End the processes anyway, and remove the topology's folder, which may be the
            # cause. Then repeat the write to the store.
            progress(f"{error}; ending the processes first")
            self.clean_up(launch, folder, progress, keep_logs=keep_logs, untold=True)
            was_there = topologies.kill(self.store, name, topology_id)
        if stored is None and stored_launch is None and not was_there:
            raise missing(self.store, name, self.config.cluster)
        # Processes that wait for the store which had their record do not notice the kill.
        untold = stored is None and launch.store_id not in ("", store_identity(self.store))
        try:
            self.clean_up(launch, folder, progress, keep_logs=keep_logs, untold=untold)
            self._clear(name)
        except KeyboardInterrupt:
            raise Interrupted(
                f"{name} is killed, but something of it may still be stopping; `heron kill` again finishes that"
            ) from None
        logs = folder / LOG_FILES
        return str(logs) if keep_logs and logs.is_dir() else ""

    def _clear(self, name: str) -> None:
        """Remove the topology from the store.

        Nodes that the topology created and only it may remove do not prevent the kill; the next submission of the name
        reports them.

        Raises:
            StoreError: The store is unavailable.
        """
        try:
            topologies.clear(self.store, name)
        except StoreForbidden as error:
            log.warning("%s", error)

    def clear_if_gone(self, name: str) -> None:
        """Remove what was written for a topology while it was being killed.

        Raises:
            StoreError: The store is unavailable.
        """
        with self._locked(name):
            if self.store.get(paths.execution_state(name)) is None:
                self._clear(name)

    def clean_up(
        self,
        launch: Launch,
        folder: Path,
        progress: Progress = silent,
        *,
        keep_logs: bool = False,
        untold: bool = False,
    ) -> None:
        """Stop all processes and remove the topology's folder.

        Raises:
            SchedulerError: The scheduler fails.
        """
        self.scheduler.kill(launch, progress, untold=untold)
        check_fence(self.store)  # another process may have completed the kill and reused the name meanwhile
        if keep_logs:
            self.scheduler.save_logs(launch, folder)
        self.scheduler.remove(launch)
        remove_folder(folder, keep_logs=keep_logs)
        self._removed(launch)

    def _lost_launch(self, name: str, role: str, environ: str, stored: ExecutionState | None) -> Launch:
        """Return a launch for a topology whose folder is missing."""
        topology_id = stored.topology_id if stored else name
        return Launch(
            self.config.cluster, role, environ, name, topology_id, self.config.store.url,
            str(self._place_of(role, environ, name)), str(runtime_dir(topology_id)),
        )  # fmt: skip

    # Other operations.

    def restart(self, record: TopologyRecord, container: int, timeout_seconds: float) -> tuple[int, ...]:
        """Restart one container, or all (-1).

        Raises:
            NotFound: The topology or container does not run.
            SchedulerError: The scheduler fails.
            Failure: The scheduler does not answer.
        """
        if container != ALL:
            check_container(record, container)
        stored = record.execution
        place = self._place_of(stored.role, stored.environ, stored.topology)
        launch = load_launch(self._folder_of(stored, place))
        if launch is None:
            raise Failure(f"the folder of {stored.topology} is missing", "`heron kill` cleans up.")
        return self.scheduler.restart(launch, container, timeout_seconds)

    def update(
        self, record: TopologyRecord, request: UpdateRequest, timeout_seconds: float, progress: Progress = silent
    ) -> PlannedUpdate:
        """Update a running topology; return when it runs by the new plan. Raises as ``TopologyUpdate.run``."""
        stored = record.execution
        folder = self._folder_of(stored, self._place_of(stored.role, stored.environ, stored.topology))

        def grant(definition: TopologyDefinition, packing: PackingPlan) -> None:
            granted = Granted(definition, packing)
            with self._granting:
                self.config.quota.check(all_granted(self.config.homes, apart_from=folder), amount_of(granted))
                write_granted(folder, granted)

        inspector = Inspector(self.store, self.config.homes)
        return TopologyUpdate(self.store, inspector, grant, record).run(request, timeout_seconds, progress)

    def drain(self, name: str, role: str, environ: str, timeout_seconds: float, progress: Progress = silent) -> int:
        """Drain a topology before a kill. Raises as ``drain``, and NotFound."""
        inspector = Inspector(self.store, self.config.homes)
        return drain(inspector, inspector.find(name, role, environ), timeout_seconds, progress)

    def place_of(self, launch: Launch) -> Path:
        """Return the path of the topology's folder."""
        return self._place_of(launch.role, launch.environ, launch.topology)

    def _place_of(self, role: str, environ: str, name: str) -> Path:
        return place_of(self.config.home, self.config.cluster, role, environ, name)

    def _folder_of(self, stored: ExecutionState | None, place: Path) -> Path:
        """Return ``place``, unless it was submitted from another home with the same store (``Homes``)."""
        return place if stored is None else self.config.homes.of(stored)

    def _stored(self, name: str, *, insist: bool = False) -> ExecutionState | None:
        try:
            return topologies.read_topology(self.store, name).execution
        except NoSuchTopology:
            return None
        except StoreError:
            # The record is damaged, or the store is unavailable. In the second case this raises again.
            try:
                return next((s for s in topologies.list_topologies(self.store) if s.topology == name), None)
            except StoreError:
                if not insist:
                    raise
                return None

    @contextmanager
    def _locked(self, name: str) -> Iterator[None]:
        with self._naming:
            lock = self._locks.setdefault(name, threading.Lock())
        with lock:
            yield


@dataclass
class Prepared:
    """Submission in its ``staging`` folder; ``adoption`` holds the files of its start checkpoint."""

    launch: Launch
    staging: Path
    submission: Submission
    execution: ExecutionState
    adoption: CheckpointCopy | None = None

    def adopt(self, checkpoint: CheckpointSource, scheduler: Scheduler, progress: Progress) -> None:
        """Start with this checkpoint. Raises as ``adopt_files`` and ``Scheduler.place_checkpoint``."""
        definition, packing = self.submission.definition, self.submission.packing
        bounded = setting(self.launch.settings, Keys.HERON_VOLUME_FOLDER) is not None
        adoption = adopt_files(checkpoint, definition, packing, self.staging, progress, bounded=bounded)
        self.adoption = adoption
        self.launch = dataclasses.replace(
            self.launch, start_checkpoint=adoption.checkpoint, start_generation=adoption.generation
        )
        self.launch.save(self.staging / LAUNCH_FILE)
        scheduler.place_checkpoint(self.launch, self.staging)

    def undo(self, scheduler: Scheduler) -> None:
        """Remove the submission. None of its processes runs; a topology of the same name is left alone."""
        try:
            if self.adoption is not None:
                self.adoption.undo()
            scheduler.remove(self.launch)
        except Exception:
            log.exception("%s is not all removed", self.launch.topology)
        shutil.rmtree(self.staging, ignore_errors=True)
