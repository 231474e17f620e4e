"""Mapping of a topology to Slurm: one job whose steps are the topology's containers.

The functions are pure. They turn a launch and a packing plan into command lines, and parse the output of Slurm's
commands. A job is found by its name, which contains cluster, role, environment and submission. It is never found by its
id: a controller that has lost its last second of state may assign the same id to another user's job.

The allocation consists of equal *slots*, one for each container. The topology's scheduler runs in the slot of
container 0. A slot is as large as the largest container. ``heron.slurm.spare.containers`` adds slots for updates. A
step takes what its own container needs from its slot, with the same limits as Docker containers
(``container_spec.container_limits``).
"""

from __future__ import annotations

import json
import os.path
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from math import ceil
from typing import Any

from heron_control.schedulers.container_spec import OWN_RAM, container_limits
from heron_control.schedulers.slurm_node import RUN, RUN_FILE
from heron_runtime.failures import NotAllowed
from heron_runtime.launch import Launch
from heron_runtime.model.containers import containers_of, standbys_of
from heron_runtime.model.ids import FIRST_STANDBY, MASTER_CONTAINER, container_name, holds_master
from heron_runtime.model.plan import PackingPlan
from heron_runtime.model.settings import Keys, MiB, Setting, setting

SLURM = "slurm"
ALLOCATION_FILE = "allocation.json"  # in the topology's folder: the allocation of its job
JOB_LOG = "slurm_job.log"
PLACE_SECONDS = 15  # time for Slurm to place a step
MANY_CORES = 1 << 20
FIELDS = "%A|%T|%r"
STEP_FIELDS = "%i|%j"
NODE_FIELDS = "%N|%o"
# Variables of a batch script that are wrong for a step with other resources.
JOBS_OWN = ("SLURM_MEM_PER_CPU", "SLURM_MEM_PER_NODE", "SLURM_CPUS_PER_TASK", "SLURM_NTASKS", "SLURM_NPROCS",
            "SLURM_TASKS_PER_NODE", "SLURM_NNODES", "SLURM_JOB_NUM_NODES", "SLURM_DISTRIBUTION")  # fmt: skip
_OPTIONS: Mapping[str, Setting[Any]] = {
    "partition": Keys.HERON_SLURM_PARTITION,
    "account": Keys.HERON_SLURM_ACCOUNT,
    "qos": Keys.HERON_SLURM_QOS,
    "constraint": Keys.HERON_SLURM_CONSTRAINT,
    "time": Keys.HERON_SLURM_TIME_LIMIT,
}
_OVER = frozenset(
    ("BOOT_FAIL", "CANCELLED", "COMPLETED", "DEADLINE", "FAILED", "NODE_FAIL", "OUT_OF_MEMORY", "PREEMPTED", "TIMEOUT")
)
_STARTED = frozenset(("RUNNING", "COMPLETING", "SUSPENDED", "STOPPED", "SIGNALING", "STAGE_OUT"))


@dataclass(frozen=True, slots=True)
class SlurmResources:
    """Resources of a step or a slot: whole cores, and memory in MiB."""

    cpus: int
    ram_mib: int

    def covers(self, other: SlurmResources) -> bool:
        """Return True if ``other`` fits into it."""
        return self.cpus >= other.cpus and self.ram_mib >= other.ram_mib

    def __str__(self) -> str:
        return f"{self.cpus} cores and {self.ram_mib} MiB"


@dataclass(frozen=True, slots=True)
class Allocation:
    """Number and size of the slots of a job."""

    slots: int
    slot: SlurmResources

    def to_json(self) -> str:
        """Return the content of the allocation file."""
        return json.dumps(asdict(self))

    @classmethod
    def of_json(cls, text: str) -> Allocation:
        """Parse the content of the allocation file.

        Raises:
            ValueError: The text is not valid JSON, or a number is invalid.
            TypeError: A value has the wrong type, or a field of the slot is missing or unknown.
            KeyError: A key is missing.
        """
        document = json.loads(text)
        return cls(int(document["slots"]), SlurmResources(**document["slot"]))


@dataclass(frozen=True, slots=True)
class SlurmJob:
    """A job as the queue shows it. ``reason`` is Slurm's term for why it waits, or how it ended."""

    id: str
    state: str
    reason: str

    @property
    def over(self) -> bool:
        """True if the job has ended and Slurm still remembers it."""
        return self.state in _OVER

    @property
    def started(self) -> bool:
        """True if some of the job's processes may run."""
        return self.state in _STARTED

    def __str__(self) -> str:
        why = f" ({self.reason})" if self.reason not in ("", "None") else ""
        return f"job {self.id} is {self.state}{why}"


def need_of(packing: PackingPlan, config: Mapping[str, Any], number: int) -> SlurmResources:
    """Return the resources that a container needs.

    Raises:
        KeyError: The container is not in the plan.
    """
    resources = container_limits(packing, config, number, MANY_CORES)
    return SlurmResources(max(1, ceil(resources.cpu - 1e-9)), ceil(resources.ram_bytes / MiB))


def allocation_of(packing: PackingPlan, config: Mapping[str, Any], settings: Mapping[str, Any]) -> Allocation:
    """Return an allocation that holds every container of the plan and the spare containers."""
    needs = [need_of(packing, config, number) for number in containers_of(packing, config)]
    master = need_of(packing, config, MASTER_CONTAINER)
    needs[0] = SlurmResources(master.cpus, master.ram_mib + OWN_RAM // MiB)  # the scheduler runs in its slot
    slot = SlurmResources(max(need.cpus for need in needs), max(need.ram_mib for need in needs))
    return Allocation(len(needs) + setting(settings, Keys.HERON_SLURM_SPARE_CONTAINERS), slot)


def check_room(allocation: Allocation, before: PackingPlan, after: PackingPlan, config: Mapping[str, Any]) -> None:
    """Check that an update fits into the job's allocation.

    The containers of the old plan stay until the topology runs by the new plan, so both count.

    Raises:
        NotAllowed: The allocation has too few slots, or a container of the new plan is larger than a slot.
    """
    numbers = {plan.container for plan in (*before.containers, *after.containers)}
    room = allocation.slots - 1 - len(standbys_of(config))
    if len(numbers) > room:
        raise NotAllowed(
            f"the allocation of {after.topology} holds {room} containers with tasks, and this update takes "
            f"{len(numbers)}, with those of the old plan that stay until the new one runs",
            f"Submit it again with room for them: --replace --config-property "
            f"{Keys.HERON_SLURM_SPARE_CONTAINERS.name}={len(numbers) - len(before.containers)}",
        )
    for plan in after.containers:
        need = need_of(after, config, plan.container)
        if not allocation.slot.covers(need):
            raise NotAllowed(
                f"container {plan.container} of the new plan needs {need}; a place in the allocation of "
                f"{after.topology} has {allocation.slot}",
                "Ask for more containers, or submit it again with --replace.",
            )


def job_name(launch: Launch) -> str:
    """Return the name of this submission's job. It is unique to the submission."""
    return f"heron:{launch.cluster}/{launch.role}/{launch.environ}/{launch.topology_id}"


def job_arguments(launch: Launch, allocation: Allocation) -> list[str]:
    """Return the arguments of sbatch, which reads the script from its standard input."""
    slot, nodes = allocation.slot, setting(launch.settings, Keys.HERON_SLURM_NODES)
    given = {name: setting(launch.settings, key) for name, key in _OPTIONS.items()}
    return [
        *(f"--{name}={value}" for name, value in given.items() if value),
        f"--job-name={job_name(launch)}",
        f"--nodes={nodes}-{max(nodes, allocation.slots)}",
        f"--ntasks={allocation.slots}",
        f"--cpus-per-task={slot.cpus}",
        f"--mem-per-cpu={ceil(slot.ram_mib / slot.cpus)}M",
        "--requeue",
        "--export=ALL",
        "--open-mode=append",
        f"--chdir={launch.home}",
        f"--output={f'{launch.log_dir}/{JOB_LOG}'.replace('%', '%%')}",
        "--parsable",
    ]


def job_script(launch: Launch, launch_file: str, command: Sequence[str], environment: Mapping[str, str]) -> str:
    """Return the batch script.

    It runs the topology's scheduler, and starts it again if it dies. It ends when the scheduler exits with code 0 or
    the launch file has been removed.
    """
    folder = os.path.dirname(launch_file)
    exports = "\n".join(f"export {name}={shlex.quote(value)}" for name, value in sorted(environment.items()))
    return f"""#!/bin/sh
# {job_name(launch)}
{exports}
launch={shlex.quote(launch_file)}
if [ ! -e "$launch" ]; then
    echo "$launch is not there on $(hostname): every node must see HERONRY_HOME" >&2
    exit 66
fi
run="$(hostname)-$$-$(date +%s%N)"
export {RUN}="$run"
cd {shlex.quote(folder)} && printf %s "$run" >.run.$$ && mv .run.$$ {RUN_FILE}
while [ -e "$launch" ]; do
    {shlex.join([*command, "--launch"])} "$launch" && exit 0
    sleep 1
done
"""


def elsewhere(number: int, masters: int, nodes: Iterable[str]) -> list[str]:
    """Return the nodes of the allocation on which a container that holds one of several masters must not run.

    The nodes are divided among the masters. Two masters share a node only if there are fewer nodes than masters.
    """
    there = sorted(nodes)
    parts = min(masters, len(there))
    if parts < 2 or not holds_master(number):
        return []
    rank = (number - FIRST_STANDBY + 1) if number else 0
    return [node for place, node in enumerate(there) if place % parts != rank % parts]


def step_arguments(
    number: int, need: SlurmResources, command: Sequence[str], apart_from: Sequence[str] = ()
) -> list[str]:
    """Return the command line of a container's step, which must not run on the nodes ``apart_from``."""
    return [
        "srun",
        f"--job-name={container_name(number)}",
        *([f"--exclude={','.join(apart_from)}"] if apart_from else []),
        "--nodes=1",
        "--ntasks=1",
        "--exact",
        f"--cpus-per-task={need.cpus}",
        f"--mem={need.ram_mib}M",
        f"--immediate={PLACE_SECONDS}",
        "--input=none",
        "--mpi=none",
        "--kill-on-bad-exit=0",
        *command,
    ]


def read_jobs(text: str) -> list[SlurmJob]:
    """Parse the output of squeue in the format ``FIELDS``."""
    rows = [line.split("|", 2) for line in text.splitlines() if line.count("|") >= 2]
    return [SlurmJob(*(field.strip() for field in row)) for row in rows]


def read_pairs(text: str) -> dict[str, str]:
    """Parse output in the format ``STEP_FIELDS`` or ``NODE_FIELDS`` into a map from first to second field."""
    rows = (line.split("|", 1) for line in text.splitlines() if "|" in line)
    return {first.strip(): second.strip() for first, second in rows}


def steps_named(steps: Mapping[str, str], number: int) -> list[str]:
    """Return the ids of the steps that run this container. ``steps`` maps id to name."""
    return [step for step, name in steps.items() if name == container_name(number)]


def strangers(hosts: Iterable[str], here: str) -> list[str]:
    """Return the hosts that are not this machine (``here``), compared by the first label of their names."""
    own = here.split(".")[0].lower()
    return sorted({host for host in hosts if host.split(".")[0].lower() != own})
