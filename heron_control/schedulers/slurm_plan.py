"""How a topology looks to Slurm: one job whose steps are its containers.

Pure: a launch and a packing plan in, command lines out; and what Slurm prints, read back. The job is found again by its
name, which says cluster, role, environment and submission. Never by its id: a controller that lost its last second of
state gives the same id to somebody else's job.

The allocation is made of equal *slots*, one for each container, container 0 with the topology's scheduler beside it; a
slot is as large as the largest container. ``heron.slurm.spare.containers`` adds slots for updates. A
step takes of its slot what its own container needs, which is what Docker containers get (``docker_plan.limits``).
"""

from __future__ import annotations

import json
import os.path
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from math import ceil
from typing import Any

from heron_control.schedulers.docker_plan import OWN_RAM, limits
from heron_control.schedulers.slurm_node import RUN, RUN_FILE
from heron_runtime.failures import NotAllowed
from heron_runtime.launch import Launch
from heron_runtime.model.containers import containers_of, standbys_of
from heron_runtime.model.ids import FIRST_STANDBY, MASTER_CONTAINER, container_name, holds_master
from heron_runtime.model.plan import PackingPlan
from heron_runtime.model.settings import Keys, MiB, Setting, setting

SLURM = "slurm"
ALLOCATION_FILE = "allocation.json"  # in the topology's folder: what its job was submitted with
JOB_LOG = "slurm_job.log"
PLACE_SECONDS = 15  # for Slurm to find a place for a step
MANY_CORES = 1 << 20
FIELDS = "%A|%T|%r"
STEP_FIELDS = "%i|%j"
NODE_FIELDS = "%N|%o"
# Of a batch script, and wrong for a step that asks for something else.
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
class Need:
    """What a step or a slot takes: whole cores, and MiB of memory."""

    cpus: int
    ram_mib: int

    def covers(self, other: Need) -> bool:
        """True if ``other`` finds room in it."""
        return self.cpus >= other.cpus and self.ram_mib >= other.ram_mib

    def __str__(self) -> str:
        return f"{self.cpus} cores and {self.ram_mib} MiB"


@dataclass(frozen=True, slots=True)
class Allocation:
    """So many slots of this size."""

    slots: int
    slot: Need

    def to_json(self) -> str:
        """The text of the file."""
        return json.dumps(asdict(self))

    @classmethod
    def of_json(cls, text: str) -> Allocation:
        """Raises ValueError, TypeError, KeyError."""
        found = json.loads(text)
        return cls(int(found["slots"]), Need(**found["slot"]))


@dataclass(frozen=True, slots=True)
class Job:
    """A job as the queue shows it. ``reason`` is Slurm's own word for why it waits, or how it ended."""

    id: str
    state: str
    reason: str

    @property
    def over(self) -> bool:
        """It has ended, and Slurm has not forgotten it yet."""
        return self.state in _OVER

    @property
    def started(self) -> bool:
        """Something of it may run."""
        return self.state in _STARTED

    def __str__(self) -> str:
        why = f" ({self.reason})" if self.reason not in ("", "None") else ""
        return f"job {self.id} is {self.state}{why}"


def need_of(packing: PackingPlan, config: Mapping[str, Any], number: int) -> Need:
    """What a container needs. Raises KeyError for one that is not in the plan."""
    resources = limits(packing, config, number, MANY_CORES)
    return Need(max(1, ceil(resources.cpu - 1e-9)), ceil(resources.ram_bytes / MiB))


def allocation_of(packing: PackingPlan, config: Mapping[str, Any], settings: Mapping[str, Any]) -> Allocation:
    """What holds every container of the plan."""
    needs = [need_of(packing, config, number) for number in containers_of(packing, config)]
    master = need_of(packing, config, MASTER_CONTAINER)
    needs[0] = Need(master.cpus, master.ram_mib + OWN_RAM // MiB)  # the scheduler is beside it
    slot = Need(max(need.cpus for need in needs), max(need.ram_mib for need in needs))
    return Allocation(len(needs) + setting(settings, Keys.HERON_SLURM_SPARE_CONTAINERS), slot)


def check_room(allocation: Allocation, before: PackingPlan, after: PackingPlan, config: Mapping[str, Any]) -> None:
    """Raises NotAllowed if an update would take more than the allocation has. Until a topology runs by the new plan the
    containers of the old one stay, so both count."""
    numbers = {plan.container for plan in (*before.containers, *after.containers)}
    room = allocation.slots - 1 - len(standbys_of(config))
    if len(numbers) > room:
        raise NotAllowed(
            f"the allocation of {after.topology} holds {room} containers with tasks, and this update takes "
            f"{len(numbers)}, with those of the old plan that stay until the new one runs",
            f"Submit it anew with room for them: --replace --config-property "
            f"{Keys.HERON_SLURM_SPARE_CONTAINERS.name}={len(numbers) - len(before.containers)}",
        )
    for plan in after.containers:
        need = need_of(after, config, plan.container)
        if not allocation.slot.covers(need):
            raise NotAllowed(
                f"container {plan.container} of the new plan needs {need}; a place in the allocation of "
                f"{after.topology} has {allocation.slot}",
                "Ask for more containers, or submit it anew with --replace.",
            )


def job_name(launch: Launch) -> str:
    """What this submission's job is called, and no other's."""
    return f"heron:{launch.cluster}/{launch.role}/{launch.environ}/{launch.topology_id}"


def job_arguments(launch: Launch, allocation: Allocation) -> list[str]:
    """Arguments of sbatch; the script is its standard input."""
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
    """The batch script: the topology's scheduler, started again if it dies, until it says that the topology is over."""
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
    """The nodes of the allocation where a container with one of several masters is not to run: the masters share the
    nodes out among them, so that none meets another as far as there are nodes."""
    there = sorted(nodes)
    parts = min(masters, len(there))
    if parts < 2 or not holds_master(number):
        return []
    rank = (number - FIRST_STANDBY + 1) if number else 0
    return [node for place, node in enumerate(there) if place % parts != rank % parts]


def step_arguments(number: int, need: Need, command: Sequence[str], apart_from: Sequence[str] = ()) -> list[str]:
    """The command line of a step for a container, which is not to run on the nodes ``apart_from``."""
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


def read_jobs(text: str) -> list[Job]:
    """What squeue has printed by ``FIELDS``."""
    rows = [line.split("|", 2) for line in text.splitlines() if line.count("|") >= 2]
    return [Job(*(field.strip() for field in row)) for row in rows]


def read_pairs(text: str) -> dict[str, str]:
    """What was printed by ``STEP_FIELDS`` or ``NODE_FIELDS``: the first field to the second."""
    rows = (line.split("|", 1) for line in text.splitlines() if "|" in line)
    return {first.strip(): second.strip() for first, second in rows}


def steps_named(steps: Mapping[str, str], number: int) -> list[str]:
    """The ids of those steps (id to name) that run this container."""
    return [step for step, name in steps.items() if name == container_name(number)]


def strangers(hosts: Iterable[str], here: str) -> list[str]:
    """Those hosts that are another machine than ``here``, by the first label of their names."""
    own = here.split(".")[0].lower()
    return sorted({host for host in hosts if host.split(".")[0].lower() != own})
