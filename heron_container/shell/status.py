"""The process table as it is told to others: status and metrics."""

from __future__ import annotations

import os
from collections.abc import Mapping

from heron_container.core.supervisor import Supervisor
from heron_runtime.launch import Launch
from heron_runtime.model.ids import container_name
from heron_runtime.telemetry.recorder import Telemetry
from heron_runtime.wire.container import ContainerStatus, ProcessState, ProcessStatus


def container_status(
    launch: Launch,
    number: int,
    incarnation: int,
    started: float,
    supervisor: Supervisor,
    last_lines: Mapping[str, tuple[str, ...]],
    doing: Mapping[int, str],
    trouble: str,
    now_ms: int,
    now: float,
) -> ContainerStatus:
    """heron_container itself first, then the others by slot; ``doing`` is by slot, too. ``now_ms`` (monotonic) and
    ``now`` are one instant."""
    state = ProcessState.STOPPED if supervisor.stopping else ProcessState.RUNNING
    own = ProcessStatus("heron_container", container_name(number), number, "", 0, os.getpid(), state, started)
    others = [
        ProcessStatus(
            kind=process.spec.kind,
            name=process.spec.name,
            container=number,
            component=process.spec.component,
            task=process.spec.task,
            pid=process.pid,
            state=process.state,
            since=now - (now_ms - process.since_ms) / 1000,
            restarts=process.restarts,
            last_error=process.last_error,
            last_lines=last_lines.get(process.spec.name, ()),
            doing=doing.get(slot, ""),
            young_deaths=process.backoff.young_deaths,
        )
        for slot, process in sorted(supervisor.processes.items())
    ]
    return ContainerStatus(number, launch.host, incarnation, (own, *others), trouble)


def count_up(telemetry: Telemetry, supervisor: Supervisor, dropped_lines: int) -> None:
    """Set the gauges of the process table."""
    for process in supervisor.processes.values():
        telemetry.gauge(f"__process-up/{process.spec.name}", float(process.state is ProcessState.RUNNING))
    telemetry.gauge("__log-lines-dropped", float(dropped_lines))
