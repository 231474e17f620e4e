"""Status of a topology as a JSON document, from the API server to the command line.

It holds what ``topology_status.as_json`` shows, and what only the table shows: causes of backpressure, exceptions of
user code, last lines of logs.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

import msgspec

from heron_control.inspection.tasks_state import TasksState
from heron_control.inspection.topology_status import NO_CONTAINER, ContainerView, TopologyStatus, as_json
from heron_runtime.model.dataflow import Cause
from heron_runtime.model.records import ExecutionState
from heron_runtime.model.topology import TopologyState
from heron_runtime.wire.container import ProcessState, ProcessStatus
from heron_runtime.wire.metrics import ExceptionReport


class _Container(msgspec.Struct):
    id: int
    state: ProcessState
    host: str | None = None
    trouble: str | None = None


class _Process(msgspec.Struct):
    kind: str
    name: str
    state: ProcessState
    container: int | None = None
    component: str | None = None
    task: int | None = None
    pid: int | None = None
    since: str | None = None
    restarts: int = 0
    last_error: str | None = None
    last_lines: tuple[str, ...] = ()
    doing: str | None = None


class _Document(msgspec.Struct):
    cluster: str
    role: str
    environ: str
    topology: str
    topology_id: str
    state: str
    containers: tuple[_Container, ...]
    processes: tuple[_Process, ...]
    wanted: TopologyState = TopologyState.RUNNING
    submission_user: str = ""
    submitted_at: str | None = None
    causes: tuple[Cause, ...] = ()
    exceptions: tuple[ExceptionReport, ...] = ()
    stalled: str | None = None
    waiting: str = ""
    code_user: str | None = None
    tasks_state: TasksState | None = None
    update: str = ""
    mode: str | None = None
    all_fail: str = ""
    put_aside: int = 0
    late: dict[str, int] = {}


def to_document(status: TopologyStatus) -> dict[str, Any]:
    """Return the status as plain data."""
    shown = as_json(status)
    for process, entry in zip(status.processes, shown["processes"], strict=True):
        entry["last_lines"] = list(process.last_lines)
    return {
        **shown,
        "topology_id": status.execution.topology_id,
        "stalled": status.stalled or None,
        "waiting": status.waiting,
        "all_fail": status.all_fail,
        "code_user": status.code_user,
        "wanted": str(status.execution.state),
        "submission_user": status.execution.submission_user,
        "causes": msgspec.to_builtins(status.causes),
        "exceptions": msgspec.to_builtins(status.exceptions),
    }


def from_document(data: Any) -> TopologyStatus:
    """Return the status in a document.

    Raises:
        ValueError: The document is invalid.
    """
    document = msgspec.convert(data, _Document)
    execution = ExecutionState(
        document.topology, document.topology_id, document.cluster, document.role, document.environ, document.wanted,
        document.submission_user, _seconds(document.submitted_at),
    )  # fmt: skip
    processes = tuple(
        ProcessStatus(
            p.kind, p.name, NO_CONTAINER if p.container is None else p.container, p.component or "", p.task or 0,
            p.pid or 0, p.state, _seconds(p.since), p.restarts, p.last_error or "", p.last_lines,
            p.doing or "",
        )
        for p in document.processes
    )  # fmt: skip
    containers = tuple(ContainerView(c.id, c.host or "", c.state, c.trouble or "") for c in document.containers)
    return TopologyStatus(
        execution,
        document.state,
        containers,
        processes,
        document.causes,
        document.exceptions,
        document.code_user,
        document.tasks_state,
        document.stalled or "",
        update=document.update,
        mode=document.mode or "",
        all_fail=document.all_fail,
        put_aside=document.put_aside,
        late=document.late,
        waiting=document.waiting,
    )


def _seconds(text: str | None) -> float:
    return datetime.fromisoformat(text).timestamp() if text else 0.0
