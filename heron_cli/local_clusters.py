"""The clusters of the home folder: ``local`` runs processes on this machine, ``slurm`` runs Slurm jobs.

Neither needs an API server: topology folders, settings and state are in the home folder, which the nodes of a Slurm
site share.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from heron_cli.cluster_client import TopologyLogs, check_topology_name
from heron_cli.clusters import LOCAL, SLURM, ClusterAddress
from heron_cli.console import print_detail, print_message
from heron_cli.home import Home
from heron_control.progress import Progress
from heron_runtime.failures import InvalidTopology, NotFound
from heron_runtime.model.settings import MiB

if TYPE_CHECKING:  # imported by the operations that need them: a dry run imports no gRPC and no state store
    from heron_control.inspection.inspector import Inspector
    from heron_control.inspection.topology_status import TopologyStatus
    from heron_control.packing.update import PlannedUpdate, UpdateRequest
    from heron_control.schedulers.scheduler import Scheduler
    from heron_control.schedulers.slurm import SlurmScheduler
    from heron_control.submission.service import SubmissionService
    from heron_control.submission.submission import ClusterConfig, Submission
    from heron_runtime.model.plan import PackingPlan
    from heron_runtime.model.records import TopologyRecord
    from heron_runtime.model.topology import TopologyState
    from heron_runtime.state.store import StateStore

LEAST_TASK_BYTES = 8 * MiB  # memory that a forked, idle process does not share


class LocalCluster:
    """``ClusterClient`` of the cluster ``local``, over the state store of the home folder. Not thread-safe."""

    name = LOCAL

    def __init__(self, home: Home, scheduler: Scheduler | None = None) -> None:
        """Serve the topologies of ``home``, by default with the scheduler of the cluster."""
        self.home = home
        self._given_scheduler = scheduler
        self._store: StateStore | None = None
        self._is_unused = False  # the store does not exist yet, and an empty one stands for it

    @contextmanager
    def session(self, *, create: bool = False, may_be_lost: bool = False) -> Iterator[StateStore]:
        """Open the state store until the end of the outermost block.

        A missing store is created with ``create``. Otherwise an empty one stands for it, but only if there are no
        topologies, or if it ``may_be_lost``.

        Raises:
            StoreMissing: The store of existing topologies is missing.
        """
        if self._store is not None and not (create and self._is_unused):
            yield self._store
            return
        outer = self._store, self._is_unused
        self.home.prepare()
        store, self._is_unused = self._open(create, may_be_lost)
        self._store = store
        try:
            yield store
        finally:
            store.close()
            self._store, self._is_unused = outer

    def _open(self, create: bool, may_be_lost: bool) -> tuple[StateStore, bool]:
        """Return the open store, or an empty one and True."""
        from heron_runtime.state import open_address, open_store
        from heron_runtime.state.store import StoreMissing

        store = open_address(self.home.state_store(self.name), create=create)
        try:
            store.open()
            return store, False
        except StoreMissing:
            if self._config.homes.has_topologies() and not may_be_lost:
                raise
        empty = open_store("memory://")
        empty.open()
        return empty, True

    @contextmanager
    def _topology(self, address: ClusterAddress, name: str) -> Iterator[tuple[Inspector, TopologyRecord]]:
        check_topology_name(name)
        with self.session() as store:
            inspector = self._inspector(store)
            yield inspector, inspector.find(name, address.role, address.environ)

    def _inspector(self, store: StateStore) -> Inspector:
        from heron_control.inspection.inspector import Inspector

        return Inspector(store, self._config.homes)

    def target(self) -> None:
        """Return None: instances run in this interpreter."""

    def runs_on_this_machine(self) -> bool:
        """Return True for `local`. Nodes of Slurm have other disks."""
        return self.name == LOCAL

    def _service(self, store: StateStore) -> SubmissionService:
        from heron_control.submission.service import SubmissionService

        return SubmissionService(self._config, store, self._scheduler)

    @property
    def _scheduler(self) -> Scheduler:
        from heron_control.schedulers.local import LocalScheduler

        return self._given_scheduler or LocalScheduler()

    @property
    def _config(self) -> ClusterConfig:
        from heron_control.submission.submission import ClusterConfig

        return ClusterConfig(self.home.root, self.name, self.home.state_store(self.name), shared=True)

    def submit(self, submission: Submission, progress: Progress, *, replace: bool = False) -> Callable[[], bool]:
        """Stage the package, write the state and start the scheduler."""
        _check_memory(submission.packing)
        with self.session(create=True) as store:
            pid = self._service(store).submit(submission, progress, replace=replace, note=print_message)
        return lambda: pid is None or _is_running(pid)

    def copy_running_version(self, address: ClusterAddress, name: str, folder: Path) -> Submission | None:
        """Copy the code from the folder of the topology."""
        from heron_cli.rollout import copy_version

        try:
            with self._topology(address, name) as (_, record):
                return copy_version(record, folder)
        except NotFound:
            return None

    def start_previous_version(self, address: ClusterAddress, name: str) -> tuple[str, str] | None:
        """Return None: ``copy_running_version`` has the code."""
        return None

    def kill(self, address: ClusterAddress, name: str, progress: Progress, *, keep_logs: bool = False) -> str:
        """Kill a topology, also after an interrupted kill, and without a running scheduler or containers."""
        check_topology_name(name)
        with self.session(may_be_lost=True) as store:
            return self._service(store).kill(
                name, address.role, address.environ, progress, keep_logs=keep_logs, insist=True
            )

    def drain(self, address: ClusterAddress, name: str, secs: float, progress: Progress) -> int:
        """Drain a topology by its topology master."""
        check_topology_name(name)
        with self.session() as store:
            return self._service(store).drain(name, address.role, address.environ, secs, progress)

    def restart(self, address: ClusterAddress, name: str, container: int, timeout_secs: float) -> tuple[int, ...]:
        """Restart containers by the scheduler of the topology."""
        with self.session() as store, self._topology(address, name) as (_, record):
            return self._service(store).restart(record, container, timeout_secs)

    def update(
        self,
        address: ClusterAddress,
        name: str,
        request: UpdateRequest,
        secs: float,
        progress: Progress,
        *,
        dry_run: bool,
    ) -> dict[str, Any]:
        """Plan the update and execute it."""
        from heron_control.packing.update import plan_update

        with self.session() as store, self._topology(address, name) as (_, record):
            planned = plan_update(record.definition, record.packing, request)
            self._check_update(record, planned)
            if not dry_run:
                planned = self._service(store).update(record, request, secs, progress)
            return planned.document()

    def _check_update(self, record: TopologyRecord, planned: PlannedUpdate) -> None:
        """Check that the resources suffice. Raises Failure."""
        _check_memory(planned.after[1])

    def set_state(self, address: ClusterAddress, name: str, state: TopologyState, progress: Progress) -> None:
        """Set the state by the topology master."""
        with self._topology(address, name) as (inspector, record):
            inspector.set_state(record, state, progress)

    def checkpoints(self, address: ClusterAddress, name: str) -> list[dict[str, Any]]:
        """Return the checkpoints in the storage of the topology, and named ones."""
        check_topology_name(name)
        with self.session() as store:
            return self._service(store).checkpoints.rows(name, address.role, address.environ)

    def checkpoint(self, address: ClusterAddress, name: str, which: str, *, verify: bool) -> dict[str, Any]:
        """Read a checkpoint by its manifest."""
        check_topology_name(name)
        with self.session() as store:
            return self._service(store).checkpoints.details(name, address.role, address.environ, which, verify=verify)

    def name_checkpoint(
        self, address: ClusterAddress, name: str, label: str, wait_secs: float, progress: Progress
    ) -> tuple[int, str]:
        """Take a checkpoint by the topology master and copy it."""
        with self.session() as store, self._topology(address, name) as (_, record):
            number, folder = self._service(store).checkpoints.name(record, label, wait_secs, progress)
            return number, str(folder)

    def delete_checkpoint(self, address: ClusterAddress, name: str, label: str) -> None:
        """Delete a named checkpoint from the home folder."""
        check_topology_name(name)
        with self.session() as store:
            self._service(store).checkpoints.delete(name, address.role, address.environ, label)

    def take_checkpoint(self, address: ClusterAddress, name: str, wait_secs: float, progress: Progress) -> int:
        """Take a checkpoint by the topology master."""
        with self._topology(address, name) as (inspector, record):
            return inspector.take_checkpoint(record, wait_secs, progress)

    def restore(
        self, address: ClusterAddress, name: str, checkpoint: int, progress: Progress, *, repeat_output: bool
    ) -> tuple[int, int]:
        """Restore a checkpoint by the topology master."""
        with self._topology(address, name) as (inspector, record):
            return inspector.restore(record, checkpoint, progress, repeat_output=repeat_output)

    def topologies(self, address: ClusterAddress) -> list[dict[str, Any]]:
        """Return the topologies in the state store."""
        with self.session() as store:
            return self._inspector(store).rows(address.covers)

    def status(self, address: ClusterAddress, name: str) -> TopologyStatus:
        """Ask all processes of a topology."""
        with self._topology(address, name) as (inspector, record):
            return inspector.status(record, exceptions=True)

    def metrics(
        self, address: ClusterAddress, name: str, component: str, interval: float, wanted: Iterable[str]
    ) -> dict[str, Any]:
        """Return metrics of the topology master."""
        with self._topology(address, name) as (inspector, record):
            return inspector.metrics(record, component, interval, wanted)

    def logs(self, address: ClusterAddress, name: str) -> TopologyLogs:
        """Read logs through the containers, or from the disk."""
        from heron_control.inspection.inspector import LogReader, logged_processes

        with self._topology(address, name) as (_, record):
            components = tuple(spec.name for spec in record.definition.components)
            return TopologyLogs(tuple(logged_processes(record)), components, LogReader(record, print_detail).read)


def _check_memory(packing: PackingPlan) -> None:
    """Check that this machine has memory for one process per task. Raises InvalidTopology."""
    from heron_control.packing.demand import amount

    tasks, memory = len(packing.instances()), os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if tasks * LEAST_TASK_BYTES > memory:
        reserved = sum(container.resources.ram_bytes for container in packing.containers)
        raise InvalidTopology(
            f"{tasks} tasks need at least {amount('ram', tasks * LEAST_TASK_BYTES)} as processes of this machine, "
            f"which has {amount('ram', memory)} (the packing plan reserves {amount('ram', reserved)})",
            "Lower par, or submit to a cluster with more machines.",
        )


def _is_running(pid: int) -> bool:
    """Return whether a process runs. Reaps it if it is a child."""
    import psutil

    try:
        os.waitpid(pid, os.WNOHANG)
    except ChildProcessError:
        pass
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


MAX_SUBMITS = 3  # of a job that the controller loses repeatedly


class SlurmCluster(LocalCluster):
    """``ClusterClient`` of the cluster ``slurm``. Not thread-safe."""

    name = SLURM

    def __init__(self, home: Home) -> None:
        super().__init__(home)
        self._cached_scheduler: SlurmScheduler | None = None

    @property
    def _scheduler(self) -> SlurmScheduler:
        """The scheduler, created once, since it remembers the queue."""
        from heron_control.schedulers.slurm import SlurmScheduler

        self._cached_scheduler = self._cached_scheduler or SlurmScheduler()
        return self._cached_scheduler

    def _inspector(self, store: StateStore) -> Inspector:
        from heron_control.inspection.inspector import Inspector

        return Inspector(store, self._config.homes, self._scheduler.status)

    def submit(self, submission: Submission, progress: Progress, *, replace: bool = False) -> Callable[[], bool]:
        """Stage the package, write the state and submit the job. The returned function submits a lost job again."""
        from heron_runtime.state.topologies import read_topology

        name = submission.definition.name
        with self.session(create=True) as store:
            self._service(store).submit(submission, progress, replace=replace, note=print_message)
            home = read_topology(store, name).execution.home
        return SlurmJobGuard(self._scheduler, Path(home)).resubmit_if_lost

    def _check_update(self, record: TopologyRecord, planned: PlannedUpdate) -> None:
        from heron_control.schedulers.slurm import allocation_in
        from heron_control.schedulers.slurm_plan import check_room

        allocation = allocation_in(Path(record.execution.home))
        if allocation is not None:
            definition, after = planned.after
            check_room(allocation, record.packing, after, definition.config)


class SlurmJobGuard:
    """Submits a new job again if the controller loses it.

    A controller writes its state (StateSaveLocation) every five seconds, so it restarts without a newer job.
    """

    def __init__(self, scheduler: SlurmScheduler, folder: Path) -> None:
        self._scheduler = scheduler
        self._folder = folder
        self._submits = 1

    def resubmit_if_lost(self) -> bool:
        """Return whether the job exists. False if it has ended or is lost too often."""
        from heron_control.schedulers.slurm import SlurmError
        from heron_control.schedulers.topology_folder import LAUNCH_FILE, load_launch

        launch = load_launch(self._folder)
        if launch is None:
            return False
        try:
            job = self._scheduler.look(launch)
            if job is None and self._submits < MAX_SUBMITS:
                self._submits += 1
                self._scheduler.start(launch, self._folder / LAUNCH_FILE)
                return True
        except SlurmError:
            return True  # unknown until the controller answers
        return job is not None and not job.over
