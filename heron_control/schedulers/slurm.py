"""The ``slurm`` cluster: each topology is a job of this user, and each of its containers a step of that job.

The batch script runs the topology's scheduler process (``heron_scheduler``), which starts the steps and brings back
those that die; so this side only submits the job, looks for it in the queue, and ends it. A job is known by its name
(``slurm_plan.job_name``). ``start`` leaves a job alone that is in the queue, and submits one where there is none: after
a controller has lost it, after somebody has cancelled it, after its time was over.

Nodes and submitting machine share the topology's folder (``HERONRY_HOME`` on a file system that all see), and the
interpreter by the same path. The state store is ZooKeeper; the files store holds only where every node is this very
machine, which the queue can tell.
"""

from __future__ import annotations

import socket
import time
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlsplit

from heron_control.progress import Progress, silent
from heron_control.schedulers import local
from heron_control.schedulers import slurm_plan as plan
from heron_control.schedulers.grants import read_granted
from heron_control.schedulers.scheduler import ALL, SchedulerError
from heron_control.schedulers.slurm_client import SlurmAway, SlurmClient, SlurmError
from heron_control.schedulers.topology_folder import LAUNCH_FILE, put_package
from heron_runtime.failures import NotAllowed
from heron_runtime.files import replace_file
from heron_runtime.launch import Launch
from heron_runtime.model.containers import containers_of
from heron_runtime.model.settings import Keys, setting
from heron_runtime.spawn import child_environment, python_command
from heron_runtime.wire.container import ProcessState, ProcessStatus, SchedulerStatus

POLL_SECONDS = 0.25
CANCEL_EVERY_SECONDS = 5.0
STOP_MARGIN_SECONDS = 10.0  # the scheduler gives containers twice the grace and some seconds
KILL_SECONDS = 60.0  # Slurm's own patience (KillWait) is half of that by default
FRESH_SECONDS, STALE_SECONDS, LONG_SECONDS = 0.15, 2.0, 10.0
GONE = (
    "no job of it is in Slurm's queue; `heron restart` submits it again, `heron kill` clears up",
    "its {job}; `heron restart` submits it again, `heron kill` clears up",
)


class SlurmScheduler:
    """See ``heron_control.schedulers.scheduler.Scheduler``."""

    def __init__(self, client: SlurmClient | None = None) -> None:
        self._client = client or SlurmClient()
        self._began = time.monotonic()
        self._looks: dict[str, tuple[float, plan.Job | None]] = {}  # by topology id: the last look, and when it was

    def prepare(self, launch: Launch, folder: Path, package: Path) -> Launch:
        """Put the code into the folder, which the nodes see, too."""
        if setting(launch.settings, Keys.HERON_USER_CODE_USER) is not None:
            name = Keys.HERON_USER_CODE_USER.name
            raise NotAllowed(f"{name}: the steps of a Slurm job run as who has submitted it", f"Leave out {name}.")
        self._check_store(launch)
        put_package(package, folder)
        settings = {**launch.settings, Keys.HERON_SCHEDULER.name: plan.SLURM}
        return replace(launch, settings=settings, runtime_dir="")  # each process has one on its node

    def _check_store(self, launch: Launch) -> None:
        """Also the first question to Slurm: without an answer nothing shall be written."""
        partition = setting(launch.settings, Keys.HERON_SLURM_PARTITION)
        elsewhere = plan.strangers(self._client.hosts(partition), socket.gethostname())
        if urlsplit(launch.store_url).scheme in ("files", "memory") and elsewhere:
            more = f" and {len(elsewhere) - 1} more" if elsewhere[1:] else ""
            raise NotAllowed(
                f"the state store is on this machine's disk ({launch.store_url}), and Slurm may run the containers on "
                f"{elsewhere[0]}{more}",
                f"Use ZooKeeper: heron config {launch.cluster} set {Keys.HERON_STATE_URL.name} zookeeper://HOST:2181/…",
            )

    def bring(self, launch: Launch, folder: Path) -> None:
        """It is there: the folder is the one that its processes see."""

    def start(self, launch: Launch, launch_file: Path) -> int:
        """Submit the job, unless it is in the queue."""
        self._looks.pop(launch.topology_id, None)
        if self._client.jobs(plan.job_name(launch)):
            return 0
        folder = launch_file.parent
        granted = read_granted(folder)
        if granted is None:
            raise SchedulerError(f"there is no record of what {launch.topology} was granted in {folder}; kill it")
        allocation = plan.allocation_of(granted.packing, granted.definition.config, launch.settings)
        environment = {name: text for name in ("PYTHONPATH",) if (text := child_environment().get(name))}
        command = python_command("heron_scheduler")
        script = plan.job_script(launch, str(launch_file.resolve()), command, environment)
        try:
            replace_file(folder / plan.ALLOCATION_FILE, allocation.to_json(), 0o600)
        except OSError as error:
            raise SchedulerError(f"cannot write {folder / plan.ALLOCATION_FILE}: {error}") from error
        self._client.submit(plan.job_arguments(launch, allocation), script)
        return 0

    def restart(self, launch: Launch, container: int, timeout_seconds: float) -> tuple[int, ...]:
        """Ask the scheduler process; where its job is gone, and all are asked for, submit it again."""
        if container == ALL and not self._client.jobs(plan.job_name(launch)):
            self.start(launch, Path(launch.home, LAUNCH_FILE))
            granted = read_granted(Path(launch.home))
            return containers_of(granted.packing, granted.definition.config) if granted else ()
        return local.restart(launch, container, timeout_seconds)

    def kill(self, launch: Launch, progress: Progress = silent, *, untold: bool = False) -> None:
        """Wait until its job has ended, as it does by itself in the killed state; cancel what waits, and what lasts."""
        name = plan.job_name(launch)
        grace = 2 * setting(launch.settings, Keys.HERON_STOP_GRACE_SECS) + STOP_MARGIN_SECONDS
        patience = time.monotonic() + (0.0 if untold else grace)
        cancelled = float("-inf")
        try:
            while jobs := self._client.jobs(name):
                now = time.monotonic()
                if now > patience + KILL_SECONDS:
                    raise SlurmError(f"{launch.topology} is killed, but {jobs[0]}", "See `squeue`, and kill it again.")
                waits = not all(job.started for job in jobs)
                if (waits or now > patience) and now > cancelled + CANCEL_EVERY_SECONDS:
                    self._client.cancel(name, state="" if now > patience else "PENDING")
                    cancelled = now
                progress(f"{jobs[0]}: waiting for its end")
                time.sleep(POLL_SECONDS)
        except SlurmAway as error:
            raise SlurmAway(
                f"{launch.topology} is killed and its processes stop by themselves, but its job may still be in the "
                f"queue: {error}",
                "`heron kill` it again when `sinfo` answers.",
            ) from error
        self._looks.pop(launch.topology_id, None)

    def hold(self, launch: Launch) -> None:
        """Its folder goes when somebody removes it, and not before."""

    def save_logs(self, launch: Launch, folder: Path) -> None:
        """They are there."""

    def remove(self, launch: Launch) -> None:
        """Nothing: what is on the nodes goes with the processes there."""

    def status(self, launch: Launch) -> SchedulerStatus:
        """What the queue says, for whom the scheduler process does not tell."""
        try:
            job = self.look(launch)
        except SlurmError as error:
            return _told(ProcessState.STARTING, str(error))
        if job is None:
            return _told(ProcessState.DEAD, GONE[0])
        if job.over:
            return _told(ProcessState.DEAD, GONE[1].format(job=job))
        if job.started:
            return _told(ProcessState.RESTARTING, f"{job}, and its scheduler process does not answer yet")
        return _told(ProcessState.STARTING, f"waiting in Slurm's queue: {job}")

    def look(self, launch: Launch) -> plan.Job | None:
        """The newest job of this submission that Slurm knows, ended ones with it. Raises SlurmError.

        Who waits asks several times a second at first, and every two seconds later; others use the queue, too.
        """
        now = time.monotonic()
        known = self._looks.get(launch.topology_id)
        fresh = FRESH_SECONDS if now < self._began + LONG_SECONDS else STALE_SECONDS
        if known is not None and now < known[0] + fresh:
            return known[1]
        jobs = self._client.jobs(plan.job_name(launch), ended=True)
        found = next((job for job in reversed(jobs) if not job.over), jobs[-1] if jobs else None)
        self._looks[launch.topology_id] = now, found
        return found


def _told(state: ProcessState, text: str) -> SchedulerStatus:
    """In place of a scheduler process that cannot be asked."""
    own = ProcessStatus("heron_scheduler", "heron_scheduler", -1, "", 0, 0, state, time.time(), 0, text)
    return SchedulerStatus(own, ())


def allocation_in(folder: Path) -> plan.Allocation | None:
    """What the topology's job was submitted with; None if nothing says it."""
    try:
        return plan.Allocation.of_json((folder / plan.ALLOCATION_FILE).read_text())
    except (OSError, ValueError, TypeError, KeyError):
        return None
