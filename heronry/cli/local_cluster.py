"""The ``local`` cluster: everything of this user on this machine, below ``HERONRY_HOME``."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil

from heronry.cli import local_kill, local_submit
from heronry.cli.address import Address
from heronry.cli.clusters import LOCAL, Logs, Submission, Talk
from heronry.cli.console import note
from heronry.cli.home import Home
from heronry.failures import NotFound
from heronry.inspection.inspector import (
    SINCE_THE_START,
    Inspector,
    LogReader,
    check_container,
    check_place,
    logged_processes,
)
from heronry.inspection.topology_status import TopologyStatus
from heronry.launch import Launch
from heronry.model.topology import TopologyState
from heronry.schedulers.local import LocalScheduler
from heronry.schedulers.topology_folder import LAUNCH_FILE, LOG_FILES
from heronry.state import open_address, topologies
from heronry.state.store import StateStore, StoreError
from heronry.state.topologies import NoSuchTopology, TopologyRecord

ALL = -1


class LocalCluster:
    """See ``heronry.cli.clusters.Cluster``. Not thread-safe."""

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
        self.home.prepare()
        self._store = open_address(self.home.store)
        try:
            self._store.open()
            yield self._store
        finally:
            self._store.close()
            self._store = None

    @contextmanager
    def _topology(self, address: Address, name: str) -> Iterator[tuple[Inspector, TopologyRecord]]:
        with self.session() as store:
            inspector = Inspector(store, self.name)
            yield inspector, inspector.find(name, address.role, address.environ)

    def target(self) -> None:
        """Instances run in this interpreter."""

    def submit(self, submission: Submission, talk: Talk, *, replace: bool = False) -> Callable[[], bool]:
        """Stage the package, write the state, start the scheduler."""

        def make_room() -> None:
            try:
                self.kill(submission.address, submission.definition.name, talk)
            except NotFound:
                pass

        with self.session() as store:
            pid = local_submit.submit(self.home, store, submission, talk, make_room if replace else None)
        return lambda: _lives(pid)

    def kill(self, address: Address, name: str, talk: Talk, *, keep_logs: bool = False) -> str:
        """Also finishes a kill that was interrupted, and works when scheduler or containers are dead."""
        with self.session() as store:
            record: TopologyRecord | None = None
            try:
                record = topologies.read_topology(store, name)
            except NoSuchTopology:
                pass
            except StoreError as error:
                talk(f"{error}; killing it by its name")
            if record is not None:
                check_place(record.execution, self.name, address.role, address.environ)
            place = Path(record.execution.home) if record else self.home.topology(*address.parts, name)
            local_kill.kill(store, self.name, name, place, record, talk, keep_logs)
        return str(place / LOG_FILES) if keep_logs else ""

    def restart(self, address: Address, name: str, container: int, timeout_secs: float) -> tuple[int, ...]:
        """Ask the topology's scheduler."""
        with self._topology(address, name) as (_, record):
            if container != ALL:
                check_container(record, container)
            launch = Launch.load(Path(record.execution.home, LAUNCH_FILE))
            return LocalScheduler().restart(launch, container, timeout_secs)

    def set_state(self, address: Address, name: str, state: TopologyState, talk: Talk) -> None:
        """Ask the topology master."""
        with self._topology(address, name) as (inspector, record):
            inspector.set_state(record, state, talk)

    def topologies(self, address: Address) -> list[dict[str, Any]]:
        """Those in the store."""
        with self.session() as store:
            return Inspector(store, self.name).rows(address.covers)

    def status(self, address: Address, name: str) -> TopologyStatus:
        """Ask all of its processes."""
        with self._topology(address, name) as (inspector, record):
            return inspector.status(record, exceptions=True)

    def metrics(
        self,
        address: Address,
        name: str,
        component: str = "",
        interval: float = SINCE_THE_START,
        wanted: Iterable[str] = (),
    ) -> dict[str, Any]:
        """Ask the topology master."""
        with self._topology(address, name) as (inspector, record):
            return inspector.metrics(record, component, interval, wanted)

    def logs(self, address: Address, name: str) -> Logs:
        """Through the containers, or from the disk."""
        with self._topology(address, name) as (_, record):
            components = tuple(spec.name for spec in record.definition.components)
            return Logs(tuple(logged_processes(record)), components, LogReader(record, note).read)


def _lives(pid: int) -> bool:
    """True while the process runs; reaps it if it was our child."""
    try:
        os.waitpid(pid, os.WNOHANG)
    except ChildProcessError:
        pass
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
