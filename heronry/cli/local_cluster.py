"""The ``local`` cluster: everything of this user on this machine, below ``HERONRY_HOME``."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil

from heronry.cli import local_kill, local_submit
from heronry.cli.address import Address
from heronry.cli.ask import Asker
from heronry.cli.clusters import Submission, Talk, check_place
from heronry.cli.errors import CliError, NotAllowed, NotFound
from heronry.cli.home import Home
from heronry.launch import Launch
from heronry.schedulers.local import LocalScheduler
from heronry.state import open_store, topologies
from heronry.state.store import StateStore, StoreError
from heronry.state.topologies import NoSuchTopology, TopologyRecord

LAUNCH_FILE = "launch.json"


class LocalCluster:
    """See ``heronry.cli.clusters.Cluster``."""

    name = "local"

    def __init__(self, home: Home) -> None:
        self.home = home

    @contextmanager
    def open_store(self) -> Iterator[StateStore]:
        """The ``files`` store below the home."""
        self.home.prepare()
        store = open_store(self.home.state_url)
        store.open()
        try:
            yield store
        finally:
            store.close()

    def asker(self, record: TopologyRecord) -> Asker:
        """With the secret from the topology's folder."""
        file = Path(record.execution.home, "secret")
        try:
            return Asker(file.read_text().strip(), record.definition.id)
        except PermissionError as error:
            raise NotAllowed(f"{file}: {error.strerror}", "Only the user who submitted it may do this.") from error
        except OSError as error:
            name = record.definition.name
            raise CliError(f"{file}: {error.strerror}", f"{name}'s folder is gone; `heron kill` cleans up.") from error

    def submit(self, submission: Submission, talk: Talk, *, replace: bool = False) -> Callable[[], bool]:
        """Stage the package, write the state, start the scheduler."""

        def make_room() -> None:
            try:
                self.kill(submission.address, submission.definition.name, talk)
            except NotFound:
                pass

        with self.open_store() as store:
            pid = local_submit.submit(self.home, store, submission, talk, make_room if replace else None)
        return lambda: _lives(pid)

    def kill(self, address: Address, name: str, talk: Talk, *, keep_logs: bool = False) -> None:
        """Also finishes a kill that was interrupted, and works when scheduler or containers are dead."""
        with self.open_store() as store:
            record: TopologyRecord | None = None
            try:
                record = topologies.read_topology(store, name)
            except NoSuchTopology:
                pass
            except StoreError as error:
                talk(f"{error}; killing it by its name")
            if record is not None:
                check_place(address, name, record.execution.role, record.execution.environ)
            local_kill.kill(self.home, store, address, name, record, talk, keep_logs)

    def restart(self, record: TopologyRecord, container: int, timeout_secs: float) -> tuple[int, ...]:
        """Ask the topology's scheduler."""
        launch = Launch.load(Path(record.execution.home, LAUNCH_FILE))
        return LocalScheduler().restart(launch, container, timeout_secs)

    def log_folder(self, record: TopologyRecord) -> Path | None:
        """In the topology's folder."""
        return Path(record.execution.home, "log-files")


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
