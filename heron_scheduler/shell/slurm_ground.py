"""Containers as steps of the Slurm job that this scheduler runs in the batch script of.

Each step is held by an srun, a child of ours in a session of its own: its end is the end of the step, unless somebody
has killed it alone; so a step counts as gone when the queue does not show it either. A signal for heron_container goes
by scancel to the step, since srun takes SIGTERM as an order to kill. Where the controller is away, containers run on;
one that dies then waits until the controller answers, for no step can be begun without it.

A scheduler that was killed and is started again by the script finds the sruns of its predecessor by their command
lines, and steps without one in the queue.
"""

from __future__ import annotations

import asyncio
import logging
import os
import subprocess
import time
from collections.abc import Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path

import psutil

from heron_control.schedulers import slurm_plan as plan
from heron_control.schedulers.containers import ContainerRow
from heron_control.schedulers.grants import read_granted
from heron_control.schedulers.identity import kill_group
from heron_control.schedulers.scheduler import SchedulerError
from heron_control.schedulers.slurm import allocation_in
from heron_control.schedulers.slurm_client import SlurmClient, SlurmError
from heron_control.schedulers.slurm_node import (
    is_replaced,
    launch_on,
    node_name,
    read_nodes,
    write_nodes,
)
from heron_runtime.commands import child_environment, python_command
from heron_runtime.launch import Launch
from heron_runtime.model.containers import standbys_of
from heron_runtime.model.ids import MASTER_CONTAINER, holds_master
from heron_runtime.state.store import StateStore
from heron_scheduler.shell.adoption import Found
from heron_scheduler.shell.ground import log_file

WITHOUT_SRUN = 1 << 30  # and the number of a container: stands for the process id of a step that no srun holds
SMALLEST = plan.Need(1, 256)
log = logging.getLogger(__name__)


class SlurmGround:
    """Steps of one job."""

    confirm_seconds = 0.2

    def __init__(self, launch: Launch, launch_file: Path, client: SlurmClient | None = None) -> None:
        self._launch = launch
        self._launch_file = launch_file
        self._client = client or SlurmClient()
        self._job = os.environ["SLURM_JOB_ID"]
        self._pool = ThreadPoolExecutor(1, "slurm")  # one signal after the other
        self._sending: set[tuple[int, str]] = set()
        self._failing = False
        self._begun: dict[int, float] = {}  # container to when it was started last

    def beside_master(self) -> Launch:
        """That of container 0 on this node. Where it is on another one, nobody takes the scheduler's metrics."""
        return launch_on(self._launch, {}, self._launch.host, MASTER_CONTAINER)

    def find(self, store: StateStore) -> list[Found]:
        """By the sruns that live, and the steps in the queue."""
        found = {number: Found(number, pid, True) for number, pid in self._sruns()}
        steps = self._client.steps(self._job)
        for step, name in steps.items():
            head, _, digits = name.rpartition("-")
            if head == "heron_container" and digits.isdecimal() and int(digits) not in found:
                log.info("step %s runs %s without an srun", step, name)
                found[int(digits)] = Found(int(digits), WITHOUT_SRUN + int(digits), False)
        return [found[number] for number in sorted(found)]

    def start(self, number: int) -> subprocess.Popen[bytes]:
        """By an srun."""
        command = python_command(
            "heron_container.slurm_step", "--launch", str(self._launch_file), "--container", str(number)
        )
        environment = child_environment()
        for name in plan.JOBS_OWN:
            environment.pop(name, None)
        with open(os.open(log_file(self._launch, number), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), "ab") as out:
            return subprocess.Popen(
                plan.step_arguments(number, self._need(number), command, self._apart_from(number)),
                stdin=subprocess.DEVNULL, stdout=out, stderr=out, cwd=self._launch.home, env=environment,
                start_new_session=True,
            )  # fmt: skip

    def _apart_from(self, number: int) -> list[str]:
        """The nodes that are for other masters; none if there was no place elsewhere just now."""
        before, self._begun[number] = self._begun.get(number, float("-inf")), time.monotonic()
        folder = Path(self._launch.home)
        granted = read_granted(folder) if holds_master(number) else None
        if granted is None or time.monotonic() - before < 2 * plan.PLACE_SECONDS:
            return []
        try:
            return plan.elsewhere(number, 1 + len(standbys_of(granted.definition.config)), read_nodes(folder))
        except (OSError, ValueError) as error:
            log.warning("nobody knows which nodes the job has, so container %d may be on any: %s", number, error)
            return []

    def _need(self, number: int) -> plan.Need:
        """By the plan that was granted; an old container of a plan that is being left takes a whole slot."""
        folder = Path(self._launch.home)
        granted, allocation = read_granted(folder), allocation_in(folder)
        try:
            if granted is not None:
                return plan.need_of(granted.packing, granted.definition.config, number)
        except KeyError:
            log.info("container %d is not in the plan that was granted; it takes a whole slot", number)
        return allocation.slot if allocation is not None else SMALLEST

    def terminate(self, number: int, leader: int) -> None:
        """SIGTERM to the step's task."""
        self._signal(number, "TERM")

    def kill(self, number: int, group: int) -> None:
        """SIGKILL to all of the step, and to its srun, which may still wait for a place."""
        if group < WITHOUT_SRUN:
            kill_group(group)
        self._signal(number, "KILL")

    async def gone(self, ending: Sequence[ContainerRow], leaders: Collection[int]) -> list[int]:
        """Those whose step is not in the queue any more."""
        try:
            steps = await asyncio.to_thread(self._client.steps, self._job)
        except SlurmError as error:
            if not self._failing:
                log.error("what has ended is started again when the controller answers: %s", error)
            self._failing = True
            return []
        self._failing = False
        return [row.number for row in ending if not plan.steps_named(steps, row.number)]

    def _signal(self, number: int, name: str) -> None:
        if (number, name) in self._sending:
            return  # the controller is slow, and the core asks again and again
        self._sending.add((number, name))
        self._pool.submit(self._send, number, name)

    def _send(self, number: int, name: str) -> None:
        try:
            if is_replaced(self._launch):
                return  # the steps of the new run have the same names
            for step in plan.steps_named(self._client.steps(self._job), number):
                self._client.signal(step, name)
        except SlurmError as error:
            log.error("container %d is not told to end: %s", number, error)  # the core asks for it again in time
        finally:
            self._sending.discard((number, name))

    def _sruns(self) -> list[tuple[int, int]]:
        """Container and process id of each srun on this host that was started with our launch file."""
        found = []
        for process in psutil.process_iter():
            try:
                command = process.cmdline()
                ours = process.uids().real == os.getuid() and process.status() != psutil.STATUS_ZOMBIE
            except psutil.Error:
                continue  # it ended meanwhile, or belongs to somebody else
            given = dict(pairwise(command))
            number = given.get("--container", "")
            srun = bool(command) and os.path.basename(command[0]) == "srun"
            if ours and srun and given.get("--launch") == str(self._launch_file) and number.isdecimal():
                found.append((int(number), process.pid))
        return found


def settle_scheduler(launch: Launch, client: SlurmClient | None = None) -> Launch:
    """The launch of the scheduler on the node it runs on; tells containers where the job's nodes are.

    It has neither runtime folder nor lock there: the script starts one at a time, a run ends when another begins, and
    there is the node in the store; and nothing is left where Slurm kills it, as it does without a word.

    Raises SchedulerError, Failure, OSError.
    """
    node, nodes = node_name(), os.environ.get("SLURM_JOB_NODELIST", "")
    folder = Path(launch.home)
    try:
        addresses = (client or SlurmClient()).addresses(nodes or node)
        write_nodes(folder, addresses)
    except SlurmError as error:
        try:
            addresses = read_nodes(folder)  # of an earlier run of this job, on the same nodes perhaps
        except (OSError, ValueError):
            raise error from None
    if node not in addresses:
        raise SchedulerError(f"Slurm does not say where its node {node} is")
    return launch_on(launch, addresses, node)
