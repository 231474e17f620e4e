"""The ``local`` cluster: everything of this user on this machine, below ``HERONRY_HOME``."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from heron_cli.address import LOCAL, Address
from heron_cli.cluster import Logs
from heron_cli.console import note, say
from heron_cli.home import Home
from heron_control.progress import Progress
from heron_runtime.failures import InvalidTopology, NotFound
from heron_runtime.model.settings import MiB

if TYPE_CHECKING:  # imported where somebody is asked or something is started: a dry run needs neither, and no gRPC
    from heron_control.inspection.inspector import Inspector
    from heron_control.inspection.topology_status import TopologyStatus
    from heron_control.packing.update import PlannedUpdate, UpdateRequest
    from heron_control.submission.service import SubmissionService
    from heron_control.submission.submission import ClusterConfig, Submission
    from heron_runtime.model.plan import PackingPlan
    from heron_runtime.model.records import TopologyRecord
    from heron_runtime.model.topology import TopologyState
    from heron_runtime.state.store import StateStore

LEAST_TASK_BYTES = 8 * MiB  # what a process has for itself that was forked and does nothing yet


class LocalCluster:
    """See ``heron_cli.clusters.Cluster``. Not thread-safe."""

    name = LOCAL

    def __init__(self, home: Home) -> None:
        self.home = home
        self._store: StateStore | None = None

    @contextmanager
    def session(self) -> Iterator[StateStore]:
        """The cluster's store, open for the length of the outermost block."""
        if self._store is not None:
            yield self._store
            return
        from heron_runtime.state import open_address

        self.home.prepare()
        self._store = open_address(self.home.store_of(self.name))
        try:
            self._store.open()
            yield self._store
        finally:
            self._store.close()
            self._store = None

    @contextmanager
    def _topology(self, address: Address, name: str) -> Iterator[tuple[Inspector, TopologyRecord]]:
        with self.session() as store:
            inspector = self._inspector(store)
            yield inspector, inspector.find(name, address.role, address.environ)

    def _inspector(self, store: StateStore) -> Inspector:
        from heron_control.inspection.inspector import Inspector

        return Inspector(store, self._config.homes)

    def target(self) -> None:
        """Instances run in this interpreter."""

    def _service(self, store: StateStore) -> SubmissionService:
        from heron_control.schedulers.local import LocalScheduler
        from heron_control.submission.service import SubmissionService

        return SubmissionService(self._config, store, LocalScheduler())

    @property
    def _config(self) -> ClusterConfig:
        from heron_control.submission.submission import ClusterConfig

        return ClusterConfig(self.home.root, self.name, self.home.store_of(self.name), shared=True)

    def submit(self, submission: Submission, progress: Progress, *, replace: bool = False) -> Callable[[], bool]:
        """Stage the package, write the state, start the scheduler."""
        _check_memory(submission.packing)
        with self.session() as store:
            pid = self._service(store).submit(submission, progress, replace=replace, note=say)
        return lambda: pid is None or _lives(pid)

    def running_version(self, address: Address, name: str, folder: Path) -> Submission | None:
        """From its folder, unless nothing of that name runs."""
        from heron_cli.replacing import keep_version

        try:
            with self._topology(address, name) as (_, record):
                return keep_version(record, folder)
        except NotFound:
            return None

    def kill(self, address: Address, name: str, progress: Progress, *, keep_logs: bool = False) -> str:
        """Also finishes a kill that was interrupted, and works when scheduler or containers are dead."""
        with self.session() as store:
            return self._service(store).kill(
                name, address.role, address.environ, progress, keep_logs=keep_logs, insist=True
            )

    def drain(self, address: Address, name: str, secs: float, progress: Progress) -> int:
        """Its topology master says when all is through."""
        with self.session() as store:
            return self._service(store).drain(name, address.role, address.environ, secs, progress)

    def restart(self, address: Address, name: str, container: int, timeout_secs: float) -> tuple[int, ...]:
        """Ask the topology's scheduler."""
        with self.session() as store, self._topology(address, name) as (_, record):
            return self._service(store).restart(record, container, timeout_secs)

    def update(
        self, address: Address, name: str, asked: UpdateRequest, secs: float, progress: Progress, *, dry_run: bool
    ) -> dict[str, Any]:
        """From here; scheduler, containers and topology master follow."""
        from heron_control.packing.update import plan_update

        with self.session() as store, self._topology(address, name) as (_, record):
            planned = plan_update(record.definition, record.packing, asked)
            self._check_update(record, planned)
            if not dry_run:
                planned = self._service(store).update(record, asked, secs, progress)
            return planned.document()

    def _check_update(self, record: TopologyRecord, planned: PlannedUpdate) -> None:
        """Raises Failure where there is no room for it."""
        _check_memory(planned.after[1])

    def set_state(self, address: Address, name: str, state: TopologyState, progress: Progress) -> None:
        """Ask the topology master."""
        with self._topology(address, name) as (inspector, record):
            inspector.set_state(record, state, progress)

    def checkpoints(self, address: Address, name: str) -> list[dict[str, Any]]:
        """Those in its storage, and those with a name."""
        with self.session() as store:
            return self._service(store).kept.rows(name, address.role, address.environ)

    def checkpoint(self, address: Address, name: str, which: str, *, verify: bool) -> dict[str, Any]:
        """From its manifest; the files are here, too."""
        with self.session() as store:
            return self._service(store).kept.details(name, address.role, address.environ, which, verify=verify)

    def name_checkpoint(
        self, address: Address, name: str, label: str, wait_secs: float, progress: Progress
    ) -> tuple[int, str]:
        """Its topology master takes it, and it is copied here."""
        with self.session() as store, self._topology(address, name) as (_, record):
            number, folder = self._service(store).kept.name(record, label, wait_secs, progress)
            return number, str(folder)

    def delete_checkpoint(self, address: Address, name: str, label: str) -> None:
        """It is here."""
        with self.session() as store:
            self._service(store).kept.delete(name, address.role, address.environ, label)

    def take_checkpoint(self, address: Address, name: str, wait_secs: float, progress: Progress) -> int:
        """Ask the topology master."""
        with self._topology(address, name) as (inspector, record):
            return inspector.take_checkpoint(record, wait_secs, progress)

    def restore(
        self, address: Address, name: str, checkpoint: int, progress: Progress, *, repeat_output: bool
    ) -> tuple[int, int]:
        """Ask the topology master."""
        with self._topology(address, name) as (inspector, record):
            return inspector.restore(record, checkpoint, progress, repeat_output=repeat_output)

    def topologies(self, address: Address) -> list[dict[str, Any]]:
        """Those in the store."""
        with self.session() as store:
            return self._inspector(store).rows(address.covers)

    def status(self, address: Address, name: str) -> TopologyStatus:
        """Ask all of its processes."""
        with self._topology(address, name) as (inspector, record):
            return inspector.status(record, exceptions=True)

    def metrics(
        self, address: Address, name: str, component: str, interval: float, wanted: Iterable[str]
    ) -> dict[str, Any]:
        """Ask the topology master."""
        with self._topology(address, name) as (inspector, record):
            return inspector.metrics(record, component, interval, wanted)

    def logs(self, address: Address, name: str) -> Logs:
        """Through the containers, or from the disk."""
        from heron_control.inspection.inspector import LogReader, logged_processes

        with self._topology(address, name) as (_, record):
            components = tuple(spec.name for spec in record.definition.components)
            return Logs(tuple(logged_processes(record)), components, LogReader(record, note).read)


def _check_memory(packing: PackingPlan) -> None:
    """Every task is a process here. Raises InvalidTopology where that cannot be, whatever the tasks do."""
    from heron_control.packing.demand import amount

    tasks, memory = len(packing.instances()), os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if tasks * LEAST_TASK_BYTES > memory:
        reserved = sum(container.resources.ram_bytes for container in packing.containers)
        raise InvalidTopology(
            f"{tasks} tasks take {amount('ram', tasks * LEAST_TASK_BYTES)} at least as processes of this machine, "
            f"which has {amount('ram', memory)} (the packing plan reserves {amount('ram', reserved)})",
            "Lower par, or submit to a cluster of more machines.",
        )


def _lives(pid: int) -> bool:
    """True while the process runs; reaps it if it was our child."""
    import psutil

    try:
        os.waitpid(pid, os.WNOHANG)
    except ChildProcessError:
        pass
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
