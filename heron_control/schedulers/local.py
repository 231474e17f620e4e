"""The ``local`` cluster: each topology has its own scheduler process (``heron_scheduler``) on this host.

``start`` is called by ``heron submit``. A container calls it when the scheduler has died, and ``heron restart`` calls
it when the whole topology has died with the machine. Concurrent calls are harmless: a second scheduler finds the lock
of the first and exits.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import grpc

from heron_control.progress import Progress, silent
from heron_control.schedulers.code_user_trial import try_code_user
from heron_control.schedulers.local_processes import end_processes
from heron_control.schedulers.runtime import make_runtime_dir, remove_runtime_dir
from heron_control.schedulers.scheduler import SchedulerContext, SchedulerError
from heron_control.schedulers.topology_folder import LAUNCH_FILE, PACKAGE, put_package
from heron_runtime.checkpoint_files import CHECKPOINTS
from heron_runtime.code_user import WRITTEN_TO, CodeUser, attainable_code_user
from heron_runtime.files import entries
from heron_runtime.launch import Launch
from heron_runtime.model.records import SchedulerLocation
from heron_runtime.model.settings import Keys, setting
from heron_runtime.net.identity import identity_of
from heron_runtime.net.rpc import make_blocking_channel
from heron_runtime.net.services import SCHEDULER_SERVICE
from heron_runtime.spawn import start_session
from heron_runtime.state import paths, store_of
from heron_runtime.state.topologies import decoded
from heron_runtime.wire import message_codecs
from heron_runtime.wire.container import RestartContainer, SchedulerStatus

STOP_MARGIN_SECONDS = 5.0
POLL_SECONDS = 0.1
HOME_LEVELS = 5  # environment, role, cluster, topologies, and the home itself


def start(launch: Launch, launch_file: Path) -> int:
    """Start the topology's scheduler, which outlives this process; return its process id.

    Raises:
        SchedulerError: The scheduler cannot be started.
    """
    log_file = launch.log_dir / "heron_scheduler.log"
    try:
        launch.log_dir.mkdir(parents=True, exist_ok=True)
        log_file.touch(0o600)
    except OSError as error:
        raise SchedulerError(f"cannot write the logs of {launch.topology}: {error}; check {launch.log_dir}") from error
    try:
        process = start_session("heron_scheduler", ["--launch", str(launch_file.resolve())], launch.home, log_file)
    except OSError as error:
        raise SchedulerError(f"cannot start heron_scheduler of {launch.topology}: {error}") from error
    process.returncode = 0  # it outlives this process: suppress the warning about a running child
    return process.pid


def restart(launch: Launch, container: int, timeout_seconds: float) -> tuple[int, ...]:
    """Let the topology's scheduler restart one container, or all (-1).

    Raises:
        SchedulerError: The scheduler does not answer or refuses.
    """
    reply = _call(launch, "Restart", RestartContainer(container), timeout_seconds)
    return tuple(reply.containers)


class LocalScheduler:
    """Implementation of ``heron_control.schedulers.scheduler.Scheduler`` for the local cluster."""

    def prepare(self, launch: Launch, folder: Path, package: Path) -> Launch:
        """Put the code into the folder and create the runtime folder."""
        put_package(package, folder)
        make_runtime_dir(Path(launch.runtime_dir))
        user = attainable_code_user(launch.settings)
        if user is not None:
            self._open_to(user, launch, folder)
        return launch

    @staticmethod
    def _open_to(user: CodeUser, launch: Launch, folder: Path) -> None:
        """Give this user access to the code, and write access where user code may write."""
        home = Path(launch.home)
        for above in home.parents[:HOME_LEVELS]:
            user.let_through(above)
        user.share(folder, WRITTEN_TO)
        user.open_checkpoints(folder / CHECKPOINTS)
        user.may_read_all(folder / PACKAGE)
        for link in filter(Path.is_symlink, entries(folder / PACKAGE)):  # requirements, in the cache
            user.let_through(link.resolve().parent)
            user.may_read_all(link.resolve())
        user.open_runtime_dir(Path(launch.runtime_dir))
        try_code_user(user, folder / PACKAGE)

    def place_checkpoint(self, launch: Launch, folder: Path) -> None:
        """Do nothing: the topology's processes see the same folder."""

    def start(self, launch: Launch, launch_file: Path) -> int:
        """Start the scheduler process."""
        return start(launch, launch_file)

    def restart(self, launch: Launch, container: int, timeout_seconds: float) -> tuple[int, ...]:
        """Ask the scheduler process, after starting one if it is missing."""
        deadline = time.monotonic() + timeout_seconds
        if _location(launch) is None:
            _bring_back(launch, deadline)
        return restart(launch, container, max(1.0, deadline - time.monotonic()))

    def kill(self, launch: Launch, progress: Progress = silent, *, untold: bool = False) -> None:
        """Wait until the processes have stopped after the kill, and end remaining ones."""
        patience = 0.0 if untold else setting(launch.settings, Keys.HERON_STOP_GRACE_SECS) + STOP_MARGIN_SECONDS
        remaining = end_processes(launch, patience, progress)
        if remaining:
            ids = ", ".join(str(pid) for pid in remaining)
            raise SchedulerError(
                f"processes of {launch.topology} do not end: {ids}", "They may hang in the kernel; see `ps`."
            )

    def hold(self, launch: Launch) -> None:
        """Do nothing: the folder stays until it is removed explicitly."""

    def save_logs(self, launch: Launch, folder: Path) -> None:
        """Do nothing: the logs are already in the folder."""

    def remove(self, launch: Launch) -> None:
        """Remove the runtime folder."""
        remove_runtime_dir(launch)

    def status(self, launch: Launch) -> SchedulerStatus | None:
        """Return nothing: the topology's own scheduler process reports."""
        return None


def _bring_back(launch: Launch, deadline: float) -> None:
    """Start the scheduler and return when it listens.

    Raises:
        SchedulerError: The scheduler does not start in time.
    """
    pid = start(launch, Path(launch.home, LAUNCH_FILE))
    while _location(launch) is None:
        if time.monotonic() > deadline:
            log_file = launch.log_dir / "heron_scheduler.log"
            raise SchedulerError(
                f"the scheduler of {launch.topology}, process {pid}, did not start", f"See {log_file}."
            )
        time.sleep(POLL_SECONDS)


def _call(launch: Launch, method: str, request: object, timeout_seconds: float) -> Any:
    target = _address(launch)
    identity = identity_of(launch)
    with make_blocking_channel(target, identity) as channel:
        call = SCHEDULER_SERVICE.blocking_call(channel, method)
        try:
            return call(request, metadata=identity.metadata(), timeout=timeout_seconds)
        except grpc.RpcError as error:
            detail = error.details() if isinstance(error, grpc.Call) else str(error)
            raise SchedulerError(f"heron_scheduler of {launch.topology} at {target}: {detail}") from error


def _address(launch: Launch) -> str:
    location = _location(launch)
    if location is None:
        raise SchedulerError(f"{launch.topology} has no scheduler at this moment; it is started again within seconds")
    return f"{location.host}:{location.port}"


def _location(launch: Launch) -> SchedulerLocation | None:
    store = store_of(launch)
    store.open()
    path = paths.scheduler(launch.topology)
    try:
        location: SchedulerLocation | None = decoded(path, store.get(path), message_codecs.SCHEDULER_LOCATION)
    finally:
        store.close()
    return location


def scheduler_of(_: SchedulerContext) -> LocalScheduler:
    """Return the scheduler for an API server."""
    return LocalScheduler()
