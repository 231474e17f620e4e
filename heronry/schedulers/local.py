"""The ``local`` cluster: a scheduler process of its own for each topology (``heron_scheduler``), on this host.

``start`` is called by ``heron submit`` and, when the scheduler died, by container 0. Two calls at once do no harm: a
second scheduler finds the lock of the first and exits.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Collection
from pathlib import Path
from typing import Any

import grpc

from heronry.launch import Launch
from heronry.net.rpc import credentials, make_blocking_channel
from heronry.net.services import SCHEDULER_SERVICE
from heronry.schedulers.commands import child_environment, python_command
from heronry.schedulers.local_processes import Talk, end_processes
from heronry.schedulers.runtime import make_runtime_dir, remove_runtime_dir
from heronry.schedulers.scheduler import SchedulerError
from heronry.schedulers.topology_folder import LOG_FILES, METRICS, PACKAGE
from heronry.state import paths, store_of
from heronry.state.store import StoreError
from heronry.wire import codec
from heronry.wire.container import RestartContainer, SchedulerStatus, SchedulerStatusRequest


def start(launch: Launch, launch_file: Path) -> int:
    """Start the topology's scheduler in a session of its own; returns its process id. Raises SchedulerError.

    The process outlives its caller. What it prints before its log is set up goes to the same log file.
    """
    try:
        launch.log_dir.mkdir(parents=True, exist_ok=True)
        log = os.open(launch.log_dir / "heron_scheduler.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    except OSError as error:
        raise SchedulerError(f"cannot write the logs of {launch.topology}: {error}; check {launch.log_dir}") from error
    try:
        process = subprocess.Popen(
            python_command("heron_scheduler", "--launch", str(launch_file.resolve())),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd=launch.home,
            env=child_environment(),
            start_new_session=True,
        )
    except OSError as error:
        raise SchedulerError(f"cannot start heron_scheduler of {launch.topology}: {error}") from error
    finally:
        os.close(log)
    process.returncode = 0  # it is to outlive us: no warning about a child that still runs
    return process.pid


def status(launch: Launch, timeout_seconds: float = 5.0) -> SchedulerStatus:
    """What the scheduler says of itself and its containers. Raises SchedulerError."""
    reply: SchedulerStatus = _call(launch, "Status", SchedulerStatusRequest(), timeout_seconds)
    return reply


class LocalScheduler:
    """``heronry.schedulers.scheduler.Scheduler`` for the local cluster."""

    def prepare(self, launch: Launch, folder: Path, package: Path) -> Launch:
        """Unpack the package into the folder, and make the runtime folder."""
        # Here, since heron_container, which only starts schedulers, has no use for what packages need.
        from heronry.api.shipping import unpack_package

        unpack_package(package, folder / PACKAGE)
        for name in (LOG_FILES, METRICS):
            (folder / name).mkdir(mode=0o700, exist_ok=True)
        make_runtime_dir(Path(launch.runtime_dir))
        return launch

    def start(self, launch: Launch, launch_file: Path) -> int:
        """Start the scheduler process."""
        return start(launch, launch_file)

    def restart(self, launch: Launch, container: int, timeout_seconds: float) -> tuple[int, ...]:
        """Ask the scheduler process."""
        reply = _call(launch, "Restart", RestartContainer(container), timeout_seconds)
        return tuple(reply.containers)

    def kill(
        self, launch: Launch, timeout_seconds: float, pids: Collection[int] = (), talk: Talk = lambda _: None
    ) -> bool:
        """Wait until its processes have stopped, as they do in the killed state; end those that remain then.

        ``pids`` are processes it is known to have had. False when one does not even end by SIGKILL.
        """
        return not end_processes(launch, timeout_seconds, pids, talk)

    def hold(self, launch: Launch) -> None:
        """Its folder goes when somebody removes it, and not before."""

    def save_logs(self, launch: Launch, folder: Path) -> None:
        """They are there."""

    def remove(self, launch: Launch) -> None:
        """The runtime folder."""
        remove_runtime_dir(Path(launch.runtime_dir))

    def status(self, launch: Launch) -> SchedulerStatus | None:
        """The topology's own scheduler process tells."""
        return None


def _call(launch: Launch, method: str, request: object, timeout_seconds: float) -> Any:
    target = _address(launch)
    with make_blocking_channel(target) as channel:
        call = SCHEDULER_SERVICE.blocking_call(channel, method)
        metadata = credentials(launch.secret(), launch.topology_id)
        try:
            return call(request, metadata=metadata, timeout=timeout_seconds)
        except grpc.RpcError as error:
            detail = error.details() if isinstance(error, grpc.Call) else str(error)
            raise SchedulerError(f"heron_scheduler of {launch.topology} at {target}: {detail}") from error


def _address(launch: Launch) -> str:
    try:
        store = store_of(launch)
        store.open()
        try:
            node = store.get(paths.scheduler(launch.topology))
        finally:
            store.close()
    except StoreError as error:
        raise SchedulerError(f"the state store {launch.store_url} does not answer: {error}") from error
    if node is None:
        raise SchedulerError(
            f"{launch.topology} has no scheduler at this moment; container 0 starts it again within seconds"
        )
    location = codec.SCHEDULER_LOCATION.decode(node.data)
    return f"{location.host}:{location.port}"
