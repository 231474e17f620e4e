"""Scheduler whose containers are files in a folder, so that its state survives a crash.

``python plain_scheduler.py HOME STEP`` submits the topology ``words`` and dies at STEP as by SIGKILL.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from heron_apiserver.packages import PackageRepository
from heron_apiserver.submit_request import SubmitRequest, check_definition
from heron_apiserver.topologies import PlacedTopologies
from heron_control.packaging.shipping import pack_package
from heron_control.progress import Progress, silent
from heron_control.schedulers.scheduler import SchedulerError
from heron_control.submission.submission import ClusterConfig
from heron_runtime.launch import Launch
from heron_runtime.model.topology import (
    ComponentKind,
    ComponentSpec,
    StreamSchema,
    TopologyDefinition,
    TopologyState,
)
from heron_runtime.state import StoreAddress, open_store
from heron_runtime.state.store import Operation, StateStore
from heron_runtime.wire.container import SchedulerStatus

STEPS = ("prepare", "before commit", "after commit", "start", "kill", "remove")


class PlainScheduler:
    """Scheduler with injected failures: ``fails`` and ``dies`` name steps."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.fails: set[str] = set()
        self.dies = ""
        self.restarts: list[tuple[int, float]] = []  # containers and timeouts
        folder.mkdir(exist_ok=True)

    def at(self, step: str) -> None:
        """Fail or die if this step is selected."""
        if step == self.dies:
            os._exit(9)
        if step in self.fails:
            raise SchedulerError(f"{step} fails")

    def running(self) -> set[str]:
        """Return the ids of running topologies."""
        return {p.name for p in self.folder.iterdir() if p.suffix != ".made"}

    def made(self) -> set[str]:
        """Return the ids of prepared topologies that were not removed."""
        return {p.stem for p in self.folder.iterdir() if p.suffix == ".made"}

    def prepare(self, launch: Launch, folder: Path, package: Path) -> Launch:
        """Record the topology without unpacking its package."""
        (self.folder / f"{launch.topology_id}.made").touch()
        self.at("prepare")
        return replace(launch, host="inside")

    def place_checkpoint(self, launch: Launch, folder: Path) -> None:
        """Do nothing: the new leader sees the same folder."""

    def start(self, launch: Launch, launch_file: Path) -> int:
        """Mark the topology as running."""
        assert Launch.load(launch_file).topology_id == launch.topology_id
        assert (launch_file.parent / "secret").stat().st_mode & 0o777 == 0o400
        self.at("start")
        (self.folder / launch.topology_id).touch()
        return 0

    def restart(self, launch: Launch, container: int, timeout_seconds: float) -> tuple[int, ...]:
        """Record the request."""
        self.restarts.append((container, timeout_seconds))
        return (container,)

    def kill(self, launch: Launch, progress: Progress = silent, *, untold: bool = False) -> None:
        """Mark the topology as stopped."""
        self.at("kill")
        (self.folder / launch.topology_id).unlink(missing_ok=True)

    def hold(self, launch: Launch) -> None:
        """Do nothing."""
        (self.folder / f"{launch.topology_id}.held.made").touch()

    def save_logs(self, launch: Launch, folder: Path) -> None:
        """Write the logs of its containers to the folder."""
        self.at("save logs")
        assert (self.folder / f"{launch.topology_id}.held.made").exists(), "they were not held back in time"
        assert not (self.folder / launch.topology_id).exists(), "it writes them still"
        (folder / "log-files").mkdir(exist_ok=True)
        (folder / "log-files" / "inside.log").write_text("all that was said\n")

    def remove(self, launch: Launch) -> None:
        """Remove what ``prepare`` created."""
        self.at("remove")
        for ending in ("made", "held.made"):
            (self.folder / f"{launch.topology_id}.{ending}").unlink(missing_ok=True)

    def status(self, launch: Launch) -> SchedulerStatus | None:
        """Return None: this scheduler has no status."""
        return None


class DyingStore:
    """Store whose process dies just before or after a commit."""

    def __init__(self, store: StateStore, scheduler: PlainScheduler) -> None:
        self._store = store
        self._scheduler = scheduler

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def commit(self, operations: Sequence[Operation]) -> list[int]:
        """Die before or after the commit if selected."""
        self._scheduler.at("before commit")
        done = self._store.commit(operations)
        self._scheduler.at("after commit")
        return done


def world(
    home: Path, clock: Callable[[], float] = time.monotonic
) -> tuple[PlacedTopologies, PlainScheduler, StateStore]:
    """Return a service in ``home``, its scheduler and its open store."""
    home.mkdir(exist_ok=True, mode=0o700)
    scheduler = PlainScheduler(home.with_name(f"{home.name}-runs"))
    url = (home / "state").as_uri().replace("file:", "files:", 1)
    store = open_store(url)
    store.open()
    dying: Any = DyingStore(store, scheduler)  # delegates everything else
    service = PlacedTopologies(
        ClusterConfig(home, "box", StoreAddress(url)), dying, scheduler, PackageRepository(home), clock
    )
    return service, scheduler, store


def definition(serial: int = 1) -> TopologyDefinition:
    """Return a topology with one spout."""
    spout = ComponentSpec("word", ComponentKind.SPOUT, "m:Word", 1, (StreamSchema(fields=("word",)),))
    return TopologyDefinition("words", f"words-{serial}", (spout,))


def fields(**more: Any) -> SubmitRequest:
    """Return a submit request for it."""
    return replace(SubmitRequest("words", "box", "ads", "prod", "ada", TopologyState.RUNNING), **more)


def package(service: PlacedTopologies, content: bytes = b"x = 1\n") -> str:
    """Upload a package and return its digest."""
    incoming = service.packages.incoming()
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder, "package")
        source.mkdir()
        (source / "words.py").write_bytes(content)
        pack_package(source, Path(folder, "sent"))
        incoming.write(Path(folder, "sent").read_bytes())
    return service.packages.accept(incoming)


def submit(service: PlacedTopologies, serial: int = 1, **more: Any) -> bool:
    """Submit ``words``."""
    made = definition(serial)
    wanted = fields(**more)
    return service.submit(wanted, made, check_definition(made, wanted), package(service))


if __name__ == "__main__":
    made_service, made_scheduler, _ = world(Path(sys.argv[1]))
    if sys.argv[2] in ("kill", "remove"):
        submit(made_service)
        made_scheduler.dies = sys.argv[2]
        made_service.submissions.kill("words", "ads", "prod")
    else:
        made_scheduler.dies = sys.argv[2]
        submit(made_service)
