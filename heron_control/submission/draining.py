"""Draining: end a topology after it has processed all tuples it has read (``heron kill --drain``).

Spouts are paused first. A stateful topology then takes a last checkpoint and stays paused after it. Every task confirms
that the checkpoint is committed, so transactional sinks show the result of all tuples that were read. With acks, the
drain is complete when all tuples have been acked or failed. If the drain exceeds its timeout, the topology continues as
before and is not killed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import grpc

from heron_control.inspection.inspector import Inspector
from heron_control.progress import Progress
from heron_control.schedulers.topology_folder import load_launch
from heron_runtime.failures import Failure, Interrupted, Unavailable, UsageError
from heron_runtime.model.checkpoints import keeps_state
from heron_runtime.model.records import TopologyRecord
from heron_runtime.model.settings import Keys, setting
from heron_runtime.model.topology import TopologyState
from heron_runtime.wire.master import MasterStatus

POLL_SECS = 0.2
HEARTBEATS = 3  # required time without tuples in flight: heartbeats carry the count, and the pause takes time to spread


class NotDrained(Failure):
    """Raised when draining exceeds its timeout; nothing was killed."""


def drain(inspector: Inspector, record: TopologyRecord, timeout_secs: float, progress: Progress) -> int:
    """Drain a topology and return the number of its last checkpoint (0 if stateless).

    On an error the topology returns to its earlier state. Also raises what a checkpoint raises.

    Raises:
        UsageError: The topology cannot be drained.
        NotDrained: The timeout has passed.
        Interrupted: The user has interrupted the drain.
    """
    name, config = record.definition.name, record.definition.config
    mode = setting(config, Keys.TOPOLOGY_RELIABILITY_MODE)
    if mode == "ATMOST_ONCE":
        raise UsageError(
            f"nothing tells when the tuples of {name} are through: its topology.reliability.mode is ATMOST_ONCE",
            "Use `heron deactivate`, wait, and `heron kill`.",
        )
    ran = record.execution.state is TopologyState.RUNNING
    deadline = time.monotonic() + timeout_secs
    try:
        inspector.set_state(record, TopologyState.PAUSED, progress)
        if not keeps_state(config):
            heartbeat_secs = setting(_settings(record), Keys.HERON_HEARTBEAT_INTERVAL_MS) / 1000
            _wait(inspector, record, deadline, progress, _in_flight, 1 + int(HEARTBEATS * heartbeat_secs / POLL_SECS))
            return 0
        progress(f"{name} takes its last checkpoint")
        number = inspector.take_checkpoint(record, timeout_secs, progress, hold=True)
        _wait(inspector, record, deadline, progress, _unconfirmed, 1)
        return number
    except (Failure, grpc.RpcError, KeyboardInterrupt) as error:
        if ran:
            inspector.set_state(record, TopologyState.RUNNING, progress)
        again = "it resumes" if ran else "it stays paused"
        if isinstance(error, KeyboardInterrupt):
            raise Interrupted(f"interrupted: {name} is not killed, {again}") from None
        raise NotDrained(
            f"{name} is not drained, and not killed: {error}; {again}", "`heron kill` without --drain ends it."
        ) from error


def _settings(record: TopologyRecord) -> Mapping[str, Any]:
    launch = load_launch(Path(record.execution.home))
    return launch.settings if launch is not None else {}


def _in_flight(status: MasterStatus) -> str:
    found = sum(manager.flow.in_flight for manager in status.stream_managers)
    return f"{found} tuples are in flight" if found else ""


def _unconfirmed(status: MasterStatus) -> str:
    tasks = status.tasks_state.unconfirmed
    return f"task {', '.join(map(str, tasks))} has not committed yet" if tasks else ""


def _wait(
    inspector: Inspector, record: TopologyRecord, deadline: float, progress: Progress,
    left: Callable[[MasterStatus], str], looks: int,
) -> None:  # fmt: skip
    """Wait until nothing was ``left`` in this number of consecutive looks."""
    done = 0
    while done < looks:
        found = left(inspector.master_status(record))
        done = 0 if found else done + 1
        if found and time.monotonic() > deadline:
            raise Unavailable(f"{found}, and its time is over")
        progress(found or "nothing is left")
        time.sleep(POLL_SECS)
