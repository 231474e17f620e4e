"""Slurm through its own commands: sbatch, squeue, scancel, sinfo, scontrol and srun, each with a timeout.

Every site has these commands, whatever its version, plug-ins and authentication. They block while the controller does
not answer, so each call has a timeout.
"""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from heron_control.schedulers import slurm_plan as plan
from heron_control.schedulers.scheduler import SchedulerError

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

    def jobs(self, name: str, *, ended: bool = False) -> list[plan.Job]:
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
