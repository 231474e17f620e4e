"""The ``local`` cluster: each topology has its own scheduler process (``heron_scheduler``) on this host.

``start`` is called by ``heron submit``. A container calls it when the scheduler has died, and ``heron restart`` calls
it when the whole topology has died with the machine. Concurrent calls are harmless: a second scheduler finds the lock
of the first and exits.

The processes of a topology are found by their titles together with their working folder or session, or by the launch
file they were started with. Processes left by user code are found by their marks and control groups.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import grpc
import psutil

from heron_control.progress import Progress, silent
from heron_control.schedulers.code_user_trial import try_code_user
from heron_control.schedulers.identity import last_holder, process_title, remnants
from heron_control.schedulers.runtime import make_runtime_dir, remove_runtime_dir
from heron_control.schedulers.scheduler import SchedulerContext, SchedulerError
from heron_control.schedulers.topology_folder import LAUNCH_FILE, PACKAGE, put_package
from heron_runtime.cgroups import groups_of
from heron_runtime.checkpoint_files import CHECKPOINTS
from heron_runtime.code_user import WRITTEN_TO, CodeUser, attainable_code_user
from heron_runtime.files import entries
from heron_runtime.launch import Launch
from heron_runtime.model.records import SchedulerLocation
from heron_runtime.model.settings import Keys, setting
from heron_runtime.net.identity import identity_of
from heron_runtime.net.rpc import SCHEDULER_SERVICE, make_blocking_channel
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


POLL_SECS = 0.1
KILL_WAIT_SECS = 5.0


def processes_of(launch: Launch) -> list[psutil.Process]:
    """Return the living processes of this submission.

    A process belongs to the submission if its title names the topology, and it either works in the topology's folder or
    belongs to a session of the topology. The session matters since user code may change the folder, and the folder
    since another home may run a topology of the same name. A process without a title belongs to it if it was started
    with the submission's launch file.
    """
    sessions = _sessions(launch)
    prefix = process_title(launch.topology, "")
    launch_files = (str(Path(launch.home, LAUNCH_FILE)), str(launch.instance_launch_file))
    processes = []
    for process in psutil.process_iter():
        try:
            command = process.cmdline()
            titled = " ".join(command).startswith(prefix)
            known = titled and (os.getsid(process.pid) in sessions or _works_in(process, launch.home))
            ours = known or any(("--launch", file) in pairwise(command) for file in launch_files)
            if ours and process.status() != psutil.STATUS_ZOMBIE:
                processes.append(process)
        except (psutil.Error, ProcessLookupError):
            continue  # it has ended meanwhile, or belongs to another user
    return processes


def end_processes(launch: Launch, grace_secs: float, progress: Progress) -> list[int]:
    """Wait for the processes of a killed topology, and kill the remaining ones after the grace time.

    Returns:
        The ids of processes that survive SIGKILL.
    """
    progress("waiting for its processes to stop")
    _wait_gone(lambda: processes_of(launch), grace_secs, progress)
    remaining = _all_of(launch)
    if remaining:
        progress(f"ending {len(remaining)} processes that did not stop on their own")
        for process in remaining:
            try:
                process.kill()  # psutil checks that the id still means the same process
            except psutil.NoSuchProcess:
                continue
        remaining = _wait_gone(lambda: _all_of(launch), KILL_WAIT_SECS, progress)
    for group in groups_of(launch).values():
        group.end()
    return [process.pid for process in remaining]


def _all_of(launch: Launch) -> list[psutil.Process]:
    return [*{*processes_of(launch), *remnants(launch), *_grouped(launch)}]


def _grouped(launch: Launch) -> Iterator[psutil.Process]:
    """Return the processes in the control groups of its containers, except this one."""
    for group in groups_of(launch).values():
        for pid in group.members():
            with contextlib.suppress(psutil.Error):
                process = psutil.Process(pid)
                if pid != os.getpid() and process.status() != psutil.STATUS_ZOMBIE:
                    yield process


def _sessions(launch: Launch) -> set[int]:
    """Return the sessions of its scheduler and containers, from their lock files."""
    locks = (path for path in entries(Path(launch.runtime_dir)) if path.suffix == ".lock")
    holders = (last_holder(path) for path in locks)
    return {holder.pid for holder in holders if holder is not None and holder.topology_id == launch.topology_id}


def _works_in(process: psutil.Process, home: str) -> bool:
    folder = process.cwd().removesuffix(" (deleted)")
    return folder == home or folder.startswith(home + "/")


def _wait_gone(
    look: Callable[[], list[psutil.Process]], timeout_secs: float, progress: Progress
) -> list[psutil.Process]:
    deadline = time.monotonic() + timeout_secs
    while True:
        remaining = look()
        if not remaining or time.monotonic() > deadline:
            return remaining
        progress(f"waiting for {len(remaining)} processes to stop")
        time.sleep(POLL_SECS)
