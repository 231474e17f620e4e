"""Waiting until a topology does what was asked: it runs, or the process that keeps it from running is shown."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection

from heron_cli.address import Address
from heron_cli.cluster import Cluster
from heron_control.inspection.topology_status import TopologyStatus, describe
from heron_control.progress import Progress
from heron_runtime.failures import Failure, Unavailable
from heron_runtime.model.plan import Phase
from heron_runtime.net.foreign import translate
from heron_runtime.wire.container import ProcessState

POLL_SECS = 0.2
SOON_SECS = 0.04  # between looks once every process has been born
RUNNING = ("running", "paused", "finished")
LOOKS = 3  # in a row: on a machine under load nobody may answer a single one, which is no failure
MAX_SHOWN = 5  # processes
MAX_LINES = 20  # of the log of each


class DoesNotRun(Failure):
    """A process keeps dying, or whatever starts the topology is gone."""


class NotInTime(Unavailable):
    """The time is over, and nothing has failed for good."""


class StateUnknown(Unavailable):
    """The time is over, and the cluster did not answer the last request: the topology may run."""


def wait_for_state(
    cluster: Cluster,
    address: Address,
    name: str,
    topology_id: str,
    *,
    timeout_secs: float,
    progress: Progress,
    wanted: Collection[str] = RUNNING,
    starter_lives: Callable[[], bool] = lambda: True,
) -> TopologyStatus:
    """Look until the topology's state is one of ``wanted``.

    A request that is not answered says nothing about the topology, so it is sent again until the time is over.

    Raises:
        DoesNotRun: processes keep dying, or nothing starts the topology any more.
        NotInTime: its state is known, and none of ``wanted``.
        StateUnknown: the cluster does not answer.
    """
    deadline = time.monotonic() + timeout_secs
    failing = 0
    while True:
        began = time.monotonic()
        lives = starter_lives()  # asked first: what it wrote before its end is then seen below
        try:
            status = cluster.status(address, name)
        except Exception as error:
            known = translate(error)
            if not isinstance(known, Unavailable):
                raise
            if began > deadline:
                raise StateUnknown(
                    f"{name}: the cluster did not answer within {timeout_secs:g} s: {known.message}", known.cure
                ) from error
            progress(f"{name}: no answer from the cluster, asking again ({known.message})")
            time.sleep(POLL_SECS)
            continue
        if status.execution.topology_id != topology_id:
            raise Failure(f"{name} was killed and submitted anew by somebody else")
        if status.state in wanted:
            return status
        failing = failing + 1 if status.state == "failing" else 0
        if failing >= LOOKS or not lives:
            raise DoesNotRun(f"{name} does not run: {summary(status, lives)}", details=explain(status))
        if time.monotonic() > deadline:
            raise NotInTime(
                f"{name} is {status.state} after {timeout_secs:g} s: {summary(status, lives)}", details=explain(status)
            )
        working = sum(process.state is ProcessState.RUNNING for process in status.processes)
        progress(f"{name} is {status.state}: {working} of {len(status.processes)} processes run")
        pause = SOON_SECS if all(process.pid for process in status.processes) else POLL_SECS
        # A look asks every container: at a large topology, which has more to do now, it takes its time.
        time.sleep(max(pause, time.monotonic() - began))


def summary(status: TopologyStatus, starter_lives: bool) -> str:
    """Why it does not run, in one line."""
    unwell = status.unwell()
    if status.tasks_state is not None and status.tasks_state.phase is Phase.FAILED:
        # Without its advice: what does not run is taken back, so nothing is left to restore.
        return (
            f"generation {status.tasks_state.generation} has failed: {status.tasks_state.cause or 'no cause is known'}"
        )
    if not starter_lives and not any(process.restarts for process in unwell):
        return "heron_scheduler ended at once"
    if not unwell:
        return status.cause() or f"its state is {status.state}"
    worst = unwell[0]
    more = f" (and {len(unwell) - 1} more)" if len(unwell) > 1 else ""
    return f"{worst.name} is {worst.state}, restarted {worst.restarts} times{more}"


def explain(status: TopologyStatus) -> list[str]:
    """For each process that does not run: its last error and the last lines of its log; at most a few processes."""
    text = []
    for process in [p for p in status.unwell() if p.last_error or p.last_lines][:MAX_SHOWN]:
        text.append(describe(process))
        text += [f"    {line}" for line in process.last_lines[-MAX_LINES:]]
    return text
