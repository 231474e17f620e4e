"""Containers as steps of the Slurm job whose batch script runs this scheduler.

Each step is held by an srun, a child of this process in a session of its own. The end of the srun is the end of the
step, unless the srun alone was killed; so a step counts as ended only when the queue does not show it either. Signals
for heron_container go to the step by scancel, because srun takes SIGTERM as an order to kill. While the controller is
unavailable, containers continue. One that dies then waits for the controller, because no step can be started without
it.

A scheduler that was killed and restarted by the script finds the sruns of its predecessor by their command lines, and
steps without an srun in the queue.
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
from heron_control.schedulers.slurm import SlurmClient, SlurmError, allocation_in
from heron_control.schedulers.slurm_node import (
    is_replaced,
    launch_on,
    node_name,
    read_nodes,
    write_nodes,
)
from heron_runtime.launch import Launch
from heron_runtime.model.containers import standbys_of
from heron_runtime.model.ids import MASTER_CONTAINER, holds_master
from heron_runtime.spawn import child_environment, python_command
from heron_runtime.state.store import StateStore
from heron_scheduler.container_supervisor import RunningContainer, log_file

WITHOUT_SRUN = 1 << 30  # plus the container number: stands for the process id of a step without an srun
SMALLEST = plan.SlurmResources(1, 256)
log = logging.getLogger(__name__)


class SlurmBackend:
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
        self._begun: dict[int, float] = {}  # container to the time of its last start

    def metrics_launch(self) -> Launch:
        """Return the launch of container 0 on this node.

        If container 0 runs on another node, the scheduler's metrics are not reported.
        """
        return launch_on(self._launch, {}, self._launch.host, MASTER_CONTAINER)

    def find(self, store: StateStore) -> list[RunningContainer]:
        """Find containers by living sruns and by steps in the queue."""
        containers = {number: RunningContainer(number, pid, True) for number, pid in self._sruns()}
        steps = self._client.steps(self._job)
        for step, name in steps.items():
            head, _, digits = name.rpartition("-")
            if head == "heron_container" and digits.isdecimal() and int(digits) not in containers:
                log.info("step %s runs %s without an srun", step, name)
                containers[int(digits)] = RunningContainer(int(digits), WITHOUT_SRUN + int(digits), False)
        return [containers[number] for number in sorted(containers)]

    def start(self, number: int) -> subprocess.Popen[bytes]:
        """Start the container as a step, held by an srun."""
        command = python_command(
            "heron_container.slurm_step", "--launch", str(self._launch_file), "--container", str(number)
        )
        environment = child_environment()
        for name in plan.JOBS_OWN:
            environment.pop(name, None)
        with open(os.open(log_file(self._launch, number), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), "ab") as out:
            return subprocess.Popen(
                plan.step_arguments(number, self._need(number), command, self._excluded_nodes(number)),
                stdin=subprocess.DEVNULL, stdout=out, stderr=out, cwd=self._launch.home, env=environment,
                start_new_session=True,
            )  # fmt: skip

    def _excluded_nodes(self, number: int) -> list[str]:
        """Return the nodes reserved for other masters; none if there was no place elsewhere."""
        before, self._begun[number] = self._begun.get(number, float("-inf")), time.monotonic()
        folder = Path(self._launch.home)
        granted = read_granted(folder) if holds_master(number) else None
        if granted is None or time.monotonic() - before < 2 * plan.PLACE_SECONDS:
            return []
        try:
            return plan.elsewhere(number, 1 + len(standbys_of(granted.definition.config)), read_nodes(folder))
        except (OSError, ValueError) as error:
            log.warning("the job's nodes are unknown, so container %d may run on any of them: %s", number, error)
            return []

    def _need(self, number: int) -> plan.SlurmResources:
        """Return the resources of a container in the granted plan.

        A container of a plan that is being left takes a whole slot.
        """
        folder = Path(self._launch.home)
        granted, allocation = read_granted(folder), allocation_in(folder)
        try:
            if granted is not None:
                return plan.need_of(granted.packing, granted.definition.config, number)
        except KeyError:
            log.info("container %d is not in the granted plan; it takes a whole slot", number)
        return allocation.slot if allocation is not None else SMALLEST

    def terminate(self, number: int, leader: int) -> None:
        """Send SIGTERM to the step's task."""
        self._signal(number, "TERM")

    def kill(self, number: int, group: int) -> None:
        """Send SIGKILL to the whole step, and to its srun, which may still wait for resources."""
        if group < WITHOUT_SRUN:
            kill_group(group)
        self._signal(number, "KILL")

    async def find_ended(self, ending: Sequence[ContainerRow], leaders: Collection[int]) -> list[int]:
        """Return the containers whose step has left the queue."""
        try:
            steps = await asyncio.to_thread(self._client.steps, self._job)
        except SlurmError as error:
            if not self._failing:
                log.error("Slurm's controller unavailable; ended containers wait for it: %s", error)
            self._failing = True
            return []
        self._failing = False
        return [row.number for row in ending if not plan.steps_named(steps, row.number)]

    def _signal(self, number: int, name: str) -> None:
        if (number, name) in self._sending:
            return  # the controller is slow, and the container table repeats its order
        self._sending.add((number, name))
        self._pool.submit(self._send, number, name)

    def _send(self, number: int, name: str) -> None:
        try:
            if is_replaced(self._launch):
                return  # the steps of the new run have the same names
            for step in plan.steps_named(self._client.steps(self._job), number):
                self._client.signal(step, name)
        except SlurmError as error:
            log.error("cannot signal container %d: %s", number, error)  # the container table repeats its order
        finally:
            self._sending.discard((number, name))

    def _sruns(self) -> list[tuple[int, int]]:
        """Return container and process id of each srun on this host with our launch file."""
        processes = []
        for process in psutil.process_iter():
            try:
                command = process.cmdline()
                ours = process.uids().real == os.getuid() and process.status() != psutil.STATUS_ZOMBIE
            except psutil.Error:
                continue  # it ended meanwhile, or belongs to another user
            given = dict(pairwise(command))
            number = given.get("--container", "")
            srun = bool(command) and os.path.basename(command[0]) == "srun"
            if ours and srun and given.get("--launch") == str(self._launch_file) and number.isdecimal():
                processes.append((int(number), process.pid))
        return processes


def prepare_scheduler_launch(launch: Launch, client: SlurmClient | None = None) -> Launch:
    """Return the scheduler's launch on its node, and tell containers the addresses of the nodes.

    The scheduler has neither a runtime folder nor a lock on the node. The script starts one at a time, a run ends when
    another begins, and the node in the store prevents two. So nothing is left behind when Slurm kills it, which it does
    without notice.

    Raises:
        SchedulerError: The address of the node is unknown.
        Failure: Slurm cannot be asked.
        OSError: The addresses cannot be written.
    """
    node, nodes = node_name(), os.environ.get("SLURM_JOB_NODELIST", "")
    folder = Path(launch.home)
    try:
        addresses = (client or SlurmClient()).addresses(nodes or node)
        write_nodes(folder, addresses)
    except SlurmError as error:
        try:
            addresses = read_nodes(folder)  # of an earlier run of this job, which may have had the same nodes
        except (OSError, ValueError):
            raise error from None
    if node not in addresses:
        raise SchedulerError(f"node {node}: Slurm does not know its address")
    return launch_on(launch, addresses, node)
