"""Wait until a topology has a state, and explain why it does not run."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection

from heron_cli.cluster_client import ClusterClient, server_lives
from heron_cli.clusters import ClusterAddress
from heron_control.inspection.topology_status import TopologyStatus, describe
from heron_control.progress import Progress
from heron_runtime.failures import Failure, Unavailable, to_failure
from heron_runtime.model.plan import GenerationPhase
from heron_runtime.wire.container import ProcessState

POLL_SECS = 0.2
SHORT_POLL_SECS = 0.04  # once every process has started
RUNNING = ("running", "paused", "finished")
FAILING_POLLS = 3  # in a row: on a machine under load a single poll may get no answer
MAX_PROCESSES = 5  # in an explanation
MAX_LINES = 20  # of the log of each process


class TopologyStartError(Failure):
    """A process keeps dying, or the process that starts the topology is gone."""


class TopologyStartTimeout(Unavailable):
    """The topology has not reached the state in time, without a permanent failure."""


class TopologyStateUnknown(Unavailable):
    """The cluster has not answered in time: the topology may run."""


def wait_for_state(
    cluster: ClusterClient,
    address: ClusterAddress,
    name: str,
    topology_id: str,
    *,
    timeout_secs: float,
    progress: Progress,
    wanted: Collection[str] = RUNNING,
    starter_lives: Callable[[], bool] = server_lives,
) -> TopologyStatus:
    """Poll until the state of the topology is one of `wanted`.

    A request without an answer says nothing about the topology, so it is sent again until the timeout.

    Args:
        cluster: Cluster of the topology.
        address: Role and environment of the topology.
        name: Name of the topology.
        topology_id: Id of its submission.
        timeout_secs: Longest wait in seconds.
        progress: Shows the current state.
        wanted: States that end the wait.
        starter_lives: Returns whether the process that starts the topology still exists.

    Raises:
        TopologyStartError: Processes keep dying, or the process that starts the topology is gone.
        TopologyStartTimeout: The topology is in another state.
        TopologyStateUnknown: The cluster does not answer.
    """
    deadline = time.monotonic() + timeout_secs
    failing = 0
    while True:
        began = time.monotonic()
        lives = starter_lives()  # called first: the status below then contains what it wrote before its end
        try:
            status = cluster.status(address, name)
        except Exception as error:
            known = to_failure(error)
            if not isinstance(known, Unavailable):
                raise
            if began > deadline:
                raise TopologyStateUnknown(
                    f"{name}: the cluster did not answer within {timeout_secs:g} s: {known.message}", known.cure
                ) from error
            progress(f"{name}: no answer from the cluster, asking again ({known.message})")
            time.sleep(POLL_SECS)
            continue
        if status.execution.topology_id != topology_id:
            raise Failure(f"{name} was killed and submitted again by another command")
        if status.state in wanted:
            return status
        failing = failing + 1 if status.state == "failing" else 0
        if failing >= FAILING_POLLS or not lives:
            raise TopologyStartError(
                f"{name} does not run: {summarize_failure(status, lives)}", details=explain(status)
            )
        if time.monotonic() > deadline:
            raise TopologyStartTimeout(
                f"{name} is {status.state} after {timeout_secs:g} s: {summarize_failure(status, lives)}",
                details=explain(status),
            )
        working = sum(process.state is ProcessState.RUNNING for process in status.processes)
        progress(f"{name} is {status.state}: {working} of {len(status.processes)} processes run")
        pause = SHORT_POLL_SECS if all(process.pid for process in status.processes) else POLL_SECS
        # A poll asks every container, so it takes longer for a large topology, which is also busier.
        time.sleep(max(pause, time.monotonic() - began))


def summarize_failure(status: TopologyStatus, starter_lives: bool) -> str:
    """Return in one line why the topology does not run."""
    unwell = status.unwell()
    if status.tasks_state is not None and status.tasks_state.phase is GenerationPhase.FAILED:
        # Without its advice: the topology is withdrawn, so nothing is left to restore.
        return f"generation {status.tasks_state.generation} has failed: {status.tasks_state.cause or 'unknown cause'}"
    if not starter_lives and not any(process.restarts for process in unwell):
        return "heron_scheduler ended immediately"
    if not unwell:
        return status.cause() or f"its state is {status.state}"
    worst = unwell[0]
    more = f" (and {len(unwell) - 1} more)" if len(unwell) > 1 else ""
    return f"{worst.name} is {worst.state}, restarted {worst.restarts} times{more}"


def explain(status: TopologyStatus) -> list[str]:
    """Return the last error and log lines of the first processes that do not run."""
    text = []
    for process in [p for p in status.unwell() if p.last_error or p.last_lines][:MAX_PROCESSES]:
        text.append(describe(process))
        text += [f"    {line}" for line in process.last_lines[-MAX_LINES:]]
    return text
