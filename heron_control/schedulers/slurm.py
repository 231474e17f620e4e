"""The ``slurm`` cluster: each topology is a job of this user, and each of its containers is a step of that job.

The batch script runs the topology's scheduler process (``heron_scheduler``), which starts the steps and restarts those
that die. This module only submits the job, looks for it in the queue, and ends it. A job is identified by its name
(``slurm_plan.job_name``). ``start`` does nothing if the job is in the queue. Otherwise it submits the job: for example
after a controller has lost it, after it was cancelled, or after its time limit was reached.

The nodes and the submitting machine share the topology's folder (``HERONRY_HOME`` on a shared file system), and have
the interpreter at the same path. The state store is ZooKeeper. The files store is accepted only if every node is this
machine, which ``prepare`` checks against the nodes that Slurm lists.

``SlurmClient`` calls sbatch, squeue, scancel, sinfo, scontrol and srun. Every site has these commands, whatever its
version, plug-ins and authentication. They block while the controller does not answer, so each call has a timeout.
"""

from __future__ import annotations

import socket
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

from heron_control.progress import Progress, silent
from heron_control.schedulers import local
from heron_control.schedulers import slurm_plan as plan
from heron_control.schedulers.grants import read_granted
from heron_control.schedulers.scheduler import ALL, SchedulerError
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
STOP_MARGIN_SECONDS = 10.0  # the scheduler waits twice the grace time and some seconds
KILL_SECONDS = 60.0  # twice the default of Slurm's own KillWait
FRESH_SECONDS, STALE_SECONDS, LONG_SECONDS = 0.15, 2.0, 10.0
GONE = (
    "no job of it is in Slurm's queue; `heron restart` submits it again, `heron kill` clears up",
    "its {job}; `heron restart` submits it again, `heron kill` clears up",
)


class SlurmScheduler:
    """Implementation of ``heron_control.schedulers.scheduler.Scheduler`` for Slurm."""

    def __init__(self, client: SlurmClient | None = None) -> None:
        self._client = client or SlurmClient()
        self._began = time.monotonic()
        self._looks: dict[
            str, tuple[float, plan.SlurmJob | None]
        ] = {}  # by topology id: time and result of the last query

    def prepare(self, launch: Launch, folder: Path, package: Path) -> Launch:
        """Put the code into the folder, which the nodes share.

        Raises:
            NotAllowed: The settings name a user for user code, or the nodes cannot reach the state store.
            SlurmError: Slurm does not answer.
            PackageError: The package is invalid.
            OSError: A file cannot be written.
        """
        if setting(launch.settings, Keys.HERON_USER_CODE_USER) is not None:
            name = Keys.HERON_USER_CODE_USER.name
            raise NotAllowed(f"{name}: the steps of a Slurm job run as who has submitted it", f"Leave out {name}.")
        self._check_store(launch)
        put_package(package, folder)
        settings = {**launch.settings, Keys.HERON_SCHEDULER.name: plan.SLURM}
        return replace(launch, settings=settings, runtime_dir="")  # each process has its own on its node

    def _check_store(self, launch: Launch) -> None:
        """Check that all nodes that may run the containers can reach the state store.

        This is also the first request to Slurm: if it fails, nothing has been written.
        """
        partition = setting(launch.settings, Keys.HERON_SLURM_PARTITION)
        elsewhere = plan.strangers(self._client.hosts(partition), socket.gethostname())
        if urlsplit(launch.store_url).scheme in ("files", "memory") and elsewhere:
            more = f" and {len(elsewhere) - 1} more" if elsewhere[1:] else ""
            raise NotAllowed(
                f"the state store is on this machine's disk ({launch.store_url}), and Slurm may run the containers on "
                f"{elsewhere[0]}{more}",
                f"Use ZooKeeper: heron config {launch.cluster} set {Keys.HERON_STATE_URL.name} zookeeper://HOST:2181/…",
            )

    def place_checkpoint(self, launch: Launch, folder: Path) -> None:
        """Do nothing: the topology's processes see the same folder."""

    def start(self, launch: Launch, launch_file: Path) -> int:
        """Submit the job, unless it is in the queue.

        Returns:
            0, since the process that watches the containers does not run on this host.

        Raises:
            SchedulerError: The granted plan is missing, the allocation cannot be written, or Slurm refuses the job.
        """
        self._looks.pop(launch.topology_id, None)
        if self._client.jobs(plan.job_name(launch)):
            return 0
        folder = launch_file.parent
        granted = read_granted(folder)
        if granted is None:
            raise SchedulerError(f"{launch.topology}: its record of granted resources is missing in {folder}; kill it")
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
        """Ask the scheduler process. If all containers are requested and the job is gone, submit the job again."""
        if container == ALL and not self._client.jobs(plan.job_name(launch)):
            self.start(launch, Path(launch.home, LAUNCH_FILE))
            granted = read_granted(Path(launch.home))
            return containers_of(granted.packing, granted.definition.config) if granted else ()
        return local.restart(launch, container, timeout_seconds)

    def kill(self, launch: Launch, progress: Progress = silent, *, untold: bool = False) -> None:
        """Wait until the job has ended, which it does without a request once its state is killed.

        A job that has not started is cancelled, and so is one that still runs after the grace time.

        Raises:
            SlurmAway: The controller does not answer.
            SlurmError: The job is still in the queue ``KILL_SECONDS`` after the grace time.
        """
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
                f"{launch.topology} is killed and its processes stop on their own, but its job may still be in the "
                f"queue: {error}",
                "`heron kill` it again when `sinfo` answers.",
            ) from error
        self._looks.pop(launch.topology_id, None)

    def hold(self, launch: Launch) -> None:
        """Do nothing: the folder stays until it is removed explicitly."""

    def save_logs(self, launch: Launch, folder: Path) -> None:
        """Do nothing: the logs are already in the folder."""

    def remove(self, launch: Launch) -> None:
        """Do nothing: the processes on the nodes remove their files there when they end."""

    def status(self, launch: Launch) -> SchedulerStatus:
        """Return the status according to the queue, for callers that get no answer from the scheduler process."""
        try:
            job = self.look(launch)
        except SlurmError as error:
            return _make_status(ProcessState.STARTING, str(error))
        if job is None:
            return _make_status(ProcessState.DEAD, GONE[0])
        if job.over:
            return _make_status(ProcessState.DEAD, GONE[1].format(job=job))
        if job.started:
            return _make_status(ProcessState.RESTARTING, f"{job}, and its scheduler process does not answer yet")
        return _make_status(ProcessState.STARTING, f"waiting in Slurm's queue: {job}")

    def look(self, launch: Launch) -> plan.SlurmJob | None:
        """Return the newest job of this submission that Slurm knows, including ended jobs.

        The answer is cached for ``FRESH_SECONDS`` at first and for ``STALE_SECONDS`` after ``LONG_SECONDS``, since
        other users query the same controller.

        Raises:
            SlurmError: Slurm does not answer, or refuses.
        """
        now = time.monotonic()
        known = self._looks.get(launch.topology_id)
        fresh = FRESH_SECONDS if now < self._began + LONG_SECONDS else STALE_SECONDS
        if known is not None and now < known[0] + fresh:
            return known[1]
        jobs = self._client.jobs(plan.job_name(launch), ended=True)
        current = next((job for job in reversed(jobs) if not job.over), jobs[-1] if jobs else None)
        self._looks[launch.topology_id] = now, current
        return current


def _make_status(state: ProcessState, text: str) -> SchedulerStatus:
    """Return a status in place of that of a scheduler process that cannot be asked."""
    own = ProcessStatus("heron_scheduler", "heron_scheduler", -1, "", 0, 0, state, time.time(), 0, text)
    return SchedulerStatus(own, ())


def allocation_in(folder: Path) -> plan.Allocation | None:
    """Return the allocation with which the topology's job was submitted, or None if it cannot be read."""
    try:
        return plan.Allocation.of_json((folder / plan.ALLOCATION_FILE).read_text())
    except (OSError, ValueError, TypeError, KeyError):
        return None


ASK_SECONDS = 15.0
SUBMIT_SECONDS = 60.0
AWAY = ("unable to contact slurm controller", "connection refused", "connect failure", "socket timed out",
        "zero bytes were transmitted", "slurm backup controller in standby")  # fmt: skip
_MARKS = "~#!%$@^-"  # suffixes of sinfo for power states and the like; * stays: the node does not respond
NEEDED = ("sbatch", "squeue", "scancel", "sinfo", "scontrol", "srun")


class SlurmError(SchedulerError):
    """Failure of a Slurm command."""


class SlurmAway(SlurmError):
    """Slurm's controller does not answer. Running jobs continue."""

    cure = "Running topologies continue; try again when `sinfo` answers."


class SiteNode(NamedTuple):
    """A node in one of its partitions.

    ``state`` is the state in sinfo's spelling, for example ``idle``, ``down*`` or ``drained``.
    """

    name: str
    host: str
    state: str
    partition: str


@dataclass(frozen=True, slots=True)
class Site:
    """A Slurm site as ``heron doctor`` shows it. ``nodes`` lists a node once for each of its partitions."""

    version: str
    nodes: tuple[SiteNode, ...]
    tracking: str  # its ProctrackType
    refused: str = ""  # the message of sbatch if it would refuse a job of one minute


class SlurmClient:
    """Client for the jobs of this user.

    Thread-safe. Its methods block, at most for the timeouts, and raise SlurmError.
    """

    def submit(self, arguments: Sequence[str], script: str) -> str:
        """Submit a batch script, and return the job's id."""
        return _run(["sbatch", *arguments], SUBMIT_SECONDS, script).split(";")[0].strip()

    def jobs(self, name: str, *, ended: bool = False) -> list[plan.SlurmJob]:
        """Return this user's jobs of this name that are in the queue, the newest last.

        With ``ended``, include the ended jobs that Slurm still remembers.
        """
        states = ["--states=all"] if ended else []
        command = ["squeue", "--me", "--noheader", "--sort=i", f"--name={name}", f"--format={plan.FIELDS}", *states]
        return plan.read_jobs(_run(command))

    def cancel(self, name: str, *, state: str = "") -> None:
        """Cancel this user's jobs of this name, or only those in this state."""
        _run(["scancel", "--me", f"--name={name}", *([f"--state={state}"] if state else [])])

    def steps(self, job: str) -> dict[str, str]:
        """Return the id and name of each running step of a job."""
        return plan.read_pairs(
            _run(["squeue", "--steps", "--noheader", f"--jobs={job}", f"--format={plan.STEP_FIELDS}"])
        )

    def signal(self, step: str, name: str) -> None:
        """Send a signal to a step."""
        _run(["scancel", f"--signal={name}", step])

    def addresses(self, nodes: str) -> dict[str, str]:
        """Return the address of each of these nodes by its name.

        ``nodes`` is a node list as in ``SLURM_JOB_NODELIST``.
        """
        return plan.read_pairs(
            _run(["sinfo", "--noheader", "--Node", f"--nodes={nodes}", f"--format={plan.NODE_FIELDS}"])
        )

    def hosts(self, partition: str | None) -> list[str]:
        """Return the host names of all nodes, or of those in a partition (or several, separated by commas)."""
        which = [f"--partition={partition}"] if partition else []
        return _run(["sinfo", "--noheader", "--Node", "--format=%n", *which]).split()

    def examine(self) -> Site:
        """Run each command that the scheduler needs, and return a description of the site. No job is submitted."""
        name = "heron:doctor"
        version = _run(["srun", "--version"]).strip()
        self.jobs(name)
        self.cancel(name)
        refused = ""
        try:
            _run(["sbatch", "--test-only", "--time=1", "--wrap=true"])
        except SlurmAway:
            raise
        except SlurmError as error:
            refused = error.message
        rows = _run(["sinfo", "--noheader", "--Node", "--format=%N %n %T %R"]).splitlines()
        split = (row.split(None, 3) for row in rows)
        nodes = tuple(SiteNode(name, host, state.rstrip(_MARKS), where) for name, host, state, where in split)
        return Site(version, nodes, _configured("ProctrackType"), refused)


def _configured(key: str) -> str:
    """Return the value of a key of the controller's configuration, or "" if it is missing."""
    rows = (line.partition("=") for line in _run(["scontrol", "show", "config"]).splitlines())
    return next((value.strip() for name, _, value in rows if name.strip() == key), "")


def _run(command: Sequence[str], timeout_seconds: float = ASK_SECONDS, given: str = "") -> str:
    """Return the standard output of a command.

    Raises:
        SlurmAway: The controller does not answer.
        SlurmError: The command cannot be run, or fails.
    """
    program = command[0]
    try:
        done = subprocess.run(
            command, input=given, capture_output=True, text=True, errors="replace", timeout=timeout_seconds, check=False
        )
    except subprocess.TimeoutExpired:
        raise SlurmAway(f"Slurm's controller does not answer: {program} took more than {timeout_seconds:g} s") from None
    except OSError as error:
        raise SlurmError(
            f"{program} cannot be run: {error}", "Use a machine with Slurm's commands (Debian: slurm-client)."
        ) from error
    if done.returncode == 0:
        return done.stdout
    said = " ".join(line.strip() for line in (done.stderr or done.stdout).splitlines() if line.strip())
    if any(sign in said.lower() for sign in AWAY):
        raise SlurmAway(f"Slurm's controller does not answer: {said}")
    raise SlurmError(f"{program}: {said or f'exit code {done.returncode}'}")
