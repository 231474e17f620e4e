"""Status of a topology as shown by ``heron status``, derived from the store and the processes' answers. Pure.

The packing plan defines the expected processes. A container that answers reports its own. For one that does not, the
scheduler knows its first process, and the others get the same state. The state of the topology:

::

killed    the user has killed it running   every process works; ``paused`` if the user has paused it failing   a process
keeps dying, no process is present, or nothing was acked for a message timeout starting  nothing has failed, but not all
processes work yet waiting   its job waits in a queue of the cluster, for a known reason finished  every spout has read
all its input, and all of it is processed degraded  it works, but a process is missing or restarting, or a container's
disk is full

A stateful topology is also ``restoring`` (nothing is processed meanwhile), and ``failing`` once it has given up
restoring (``tasks_state.py``).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

import msgspec

from heron_control.inspection.failing_tuples import MANY, Counts, all_fail, failing_text, late_records, put_aside
from heron_control.inspection.tasks_state import TasksState, read_tasks_state, state_word
from heron_control.packing.describe import update_text
from heron_runtime.model.containers import containers_of, processes_in
from heron_runtime.model.dataflow import Cause
from heron_runtime.model.ids import container_name
from heron_runtime.model.records import ExecutionState, TopologyRecord
from heron_runtime.model.settings import Keys, setting
from heron_runtime.model.topology import TopologyState
from heron_runtime.wire.container import AT_END, ContainerStatus, ProcessState, ProcessStatus, SchedulerStatus
from heron_runtime.wire.master import MasterStatus, StreamManagerStatus
from heron_runtime.wire.metrics import ExceptionReport

OWN_DEATH = "exit code"  # prefix of the reason of a process that was not killed
YOUNG_SECS: float = Keys.HERON_RESTART_RESET_SECS.default
KEEPS_DYING = 3  # number of restarts after as many early deaths in a row
START_GRACE_SECS = 20.0  # a container that has not been seen counts as starting for this long after submit

NO_CONTAINER = -1  # container number of the scheduler
HERON_SCHEDULER = "heron_scheduler"
NOT_THERE = "it is missing"
HERON_CONTAINER = "heron_container"


@dataclass(frozen=True)
class ProcessReplies:
    """Requests to a topology's processes and their results; None or missing: no answer."""

    scheduler: SchedulerStatus | None = None
    containers: Mapping[int, ContainerStatus] = field(default_factory=dict)
    master: MasterStatus | None = None
    exceptions: tuple[ExceptionReport, ...] = ()
    errors: Mapping[str, str] = field(default_factory=dict)  # by process that did not answer, the error
    counts: Counts = field(default_factory=dict)


@dataclass(frozen=True)
class ContainerView:
    """Container as shown to the user."""

    id: int
    host: str
    state: ProcessState
    trouble: str = ""  # what delays it although its processes run


@dataclass(frozen=True)
class TopologyStatus:
    """Content of ``heron status``."""

    execution: ExecutionState
    state: str
    containers: tuple[ContainerView, ...]
    processes: tuple[ProcessStatus, ...]
    causes: tuple[Cause, ...] = ()
    exceptions: tuple[ExceptionReport, ...] = ()
    code_user: str | None = None  # user of user code; "": the user of Heronry's own processes; None: unknown
    tasks_state: TasksState | None = None  # None for a stateless topology
    stalled: str = ""  # why all tuples are stuck although every process runs; "" if some are acked or none is in flight
    waiting: str = ""  # why it cannot start yet
    mode: str = ""  # its delivery guarantee
    all_fail: str = ""  # components all of whose tuples fail, and their exceptions
    put_aside: int = 0  # number of records set aside by a streamlet program
    late: Mapping[str, int] = field(default_factory=dict)  # late records of a streamlet program, by component
    update: str = ""  # progress of an update of a stateless topology, or what the last update did not wait for

    def cause(self) -> str:
        """Reason why the state is not better, or ""."""
        if self.all_fail or self.stalled or self.waiting:
            return self.all_fail or self.stalled or self.waiting
        if self.state in ("failing", "degraded", "starting") and (troubles := self.troubles()):
            return troubles[0]
        trouble = self.tasks_state.trouble if self.tasks_state is not None else ""
        if trouble and self.state in ("failing", "restoring", "degraded"):
            return trouble
        if self.processes[0].last_error == NOT_THERE and not any(map(_is_there, self.processes)):
            where, name = self.execution.cluster, self.execution.topology
            return f"none of its processes run, as after a reboot; `heron restart {where} {name}` starts it"
        if self.state == "starting":  # a container that waits for a node reports the reason
            return next((describe(process) for process in self.unwell() if process.last_error), "")
        return next(map(describe, self.unwell()), "") if self.state in ("failing", "degraded") else ""

    def troubles(self) -> list[str]:
        """Problems of containers whose processes run."""
        troubles: dict[str, list[str]] = {}
        for container in self.containers:
            if container.trouble:
                troubles.setdefault(container.trouble, []).append(str(container.id))
        return [f"container{'s' * (len(ids) > 1)} {', '.join(ids)}: {text}" for text, ids in troubles.items()]

    def unwell(self) -> list[ProcessStatus]:
        """Return the processes that do not work, the worst first."""
        rank = {ProcessState.RESTARTING: 1, ProcessState.DEAD: 2, ProcessState.STOPPED: 3, ProcessState.STARTING: 4}
        unwell = [process for process in self.processes if process.state is not ProcessState.RUNNING]
        return sorted(unwell, key=lambda p: (p.restarts == 0, not p.last_error, rank.get(p.state, 5)))


def expected_processes(record: TopologyRecord) -> Iterator[tuple[str, str, int, str, int]]:
    """Return (kind, name, container, component, task) of every process except the scheduler."""
    config = record.definition.config
    for number in containers_of(record.packing, config):
        yield HERON_CONTAINER, container_name(number), number, "", 0
        for kind, name, component, task in processes_in(number, record.packing, config):
            yield kind, name, number, component, task


def topology_state(wanted: TopologyState, processes: Sequence[ProcessStatus], planned: bool) -> str:
    """Return the state in one word. With ``planned``, a physical plan exists: all stream managers were present."""
    if wanted is TopologyState.KILLED:
        return "killed"
    absent = [process for process in processes if process.state is not ProcessState.RUNNING]
    if not absent:
        return "paused" if wanted is TopologyState.PAUSED else "running"
    if any(map(keeps_dying, absent)) or not any(_is_there(p) for p in processes):
        return "failing"
    if all(process.state is ProcessState.STARTING for process in absent) and not (
        planned and any(process.restarts for process in absent)
    ):
        return "starting"
    return "degraded"


def stalled_text(managers: Sequence[StreamManagerStatus]) -> str:
    """Return a text if nothing was acked for a message timeout in all places with tuples in flight, or ""."""
    flows = [manager.flow for manager in managers]
    stalled = [flow.stalled_ms for flow in flows if flow.stalled_ms]
    if not stalled or any(flow.in_flight and not flow.stalled_ms for flow in flows):
        return ""
    text = f"no tuple was acked for {min(stalled) / 1000:.0f} s although tuples are in flight"
    holder = max((flow.holder for flow in flows), key=lambda holder: holder.seconds)
    if holder.component:
        return f"{text}; bottleneck: {holder}"
    return f"{text}; no stream manager has a queue: bolts hold them, or never ack them"


def has_finished(record: TopologyRecord, processes: Sequence[ProcessStatus], master: MasterStatus | None) -> bool:
    """Return True if all spouts are at their end, queues are empty, and complete checkpoints are committed."""
    spouts = {spec.name for spec in record.definition.components if spec.is_spout}
    doing = [process.doing for process in processes if process.component in spouts]
    if master is None or not doing or any(text != AT_END for text in doing):
        return False
    flows = [manager.flow for manager in master.stream_managers]
    return not master.tasks_state.unconfirmed and not any(f.in_flight or f.holder.component for f in flows)


def topology_status(record: TopologyRecord, answers: ProcessReplies, now: float) -> TopologyStatus:
    """Return the status. ``now`` is in seconds since 1970."""
    waiting = _waiting(answers)
    young = bool(waiting) or (now - record.execution.submitted_at < START_GRACE_SECS and record.physical is None)
    reported = {process.name: process for status in answers.containers.values() for process in status.processes}
    silent = {number: _silent(number, record, answers, young) for number in _numbers(record)}
    processes = [_scheduler(record, answers, young)]
    for kind, name, container, component, task in expected_processes(record):
        process_status = reported.pop(name, None)
        if process_status is not None and kind == HERON_CONTAINER:
            process_status = _with_past(process_status, answers)
        elif process_status is None and kind == HERON_CONTAINER:
            process_status = _container_process(name, container, record, answers)
        if process_status is None:
            state, reason = silent[container]
            since = record.execution.submitted_at
            process_status = ProcessStatus(kind, name, container, component, task, 0, state, since, 0, reason)
        processes.append(process_status)
    processes += reported.values()  # other processes of the containers
    states = {p.container: p.state for p in processes if p.kind == HERON_CONTAINER}
    hosts = {c.container: c.host for c in record.containers}
    troubles = {number: answer.trouble for number, answer in answers.containers.items()}
    containers = tuple(ContainerView(n, hosts.get(n, ""), states[n], troubles.get(n, "")) for n in _numbers(record))
    causes: list[Cause] = []
    for manager in answers.master.stream_managers if answers.master else ():
        causes += manager.causes
    # Processes that an update leaves out may end.
    planned = [process for process in processes if process.name not in reported]
    word = topology_state(record.execution.state, planned, record.physical is not None)
    stalled = stalled_text(answers.master.stream_managers) if answers.master and word == "running" else ""
    tasks_state = read_tasks_state(record, answers.master)
    bolts = {spec.name for spec in record.definition.components if not spec.is_spout}
    counts = {component: of for component, of in answers.counts.items() if component in bolts}
    if waiting and word in ("starting", "degraded", "failing"):
        word = "waiting"
    elif word == "running" and any(troubles.values()):
        word = "degraded"
    elif word == "running" and not stalled and has_finished(record, planned, answers.master):
        word = "finished"
    if word in ("running", "degraded") and (all_fail(counts, MANY) or any(loops(p, now) for p in planned)):
        word = "failing"
    return TopologyStatus(
        record.execution,
        "failing" if stalled else state_word(word, tasks_state),
        containers,
        tuple(processes),
        tuple(sorted(set(causes))),
        answers.exceptions,
        tasks_state=tasks_state,
        stalled=stalled,
        waiting=waiting if word == "waiting" else "",
        mode=setting(record.definition.config, Keys.TOPOLOGY_RELIABILITY_MODE),
        all_fail=failing_text(counts, answers.exceptions),
        put_aside=put_aside(answers.counts),
        late=late_records(answers.counts),
        update=update_text(record.physical),
    )


def keeps_dying(process: ProcessStatus) -> bool:
    """Return True if a process died young after each of several restarts. Earlier deaths do not count."""
    return min(process.restarts, process.young_deaths) >= KEEPS_DYING


def loops(process: ProcessStatus, now: float) -> bool:
    """Return True for an instance that runs now, but whose user code has let it die repeatedly."""
    of_user_code = bool(process.component) and process.last_error.startswith(OWN_DEATH)
    return of_user_code and process.young_deaths >= KEEPS_DYING and now - process.since < YOUNG_SECS


def describe(process: ProcessStatus) -> str:
    """Return a line about a process that does not work."""
    return f"{process.name} is {process.state}: {process.last_error or 'unknown reason'}"


def _is_there(process: ProcessStatus) -> bool:
    """Return True if the process lives or is being started."""
    return process.state in (ProcessState.RUNNING, ProcessState.STARTING, ProcessState.RESTARTING)


def _numbers(record: TopologyRecord) -> tuple[int, ...]:
    return containers_of(record.packing, record.definition.config)


def _scheduler(record: TopologyRecord, answers: ProcessReplies, young: bool) -> ProcessStatus:
    if answers.scheduler is not None:
        return answers.scheduler.scheduler
    state = ProcessState.STARTING if young else ProcessState.DEAD
    reason = answers.errors.get(HERON_SCHEDULER, "" if young else NOT_THERE)
    pid = record.scheduler.pid if record.scheduler else 0
    since = record.execution.submitted_at
    return ProcessStatus(HERON_SCHEDULER, HERON_SCHEDULER, NO_CONTAINER, "", 0, pid, state, since, 0, reason)


def _waiting(answers: ProcessReplies) -> str:
    """Return what the scheduler waits for, as reported on behalf of a process that does not exist yet."""
    own = answers.scheduler.scheduler if answers.scheduler is not None else None
    return own.last_error if own is not None and own.state is ProcessState.STARTING else ""


def _with_past(process: ProcessStatus, answers: ProcessReplies) -> ProcessStatus:
    """Add restarts and their reason, which the scheduler knows, to a container that has just started."""
    for known in answers.scheduler.containers if answers.scheduler else ():
        if known.name == process.name:
            error = process.last_error or known.last_error
            return replace(process, restarts=known.restarts, last_error=error, young_deaths=known.young_deaths)
    return process


def _container_process(
    name: str, container: int, record: TopologyRecord, answers: ProcessReplies
) -> ProcessStatus | None:
    """Return the scheduler's view of a container that exists but does not answer."""
    for process in answers.scheduler.containers if answers.scheduler else ():
        if process.container == container and process.kind == HERON_CONTAINER:
            if process.state is not ProcessState.RUNNING:
                return process
            listens = record.container(container) is not None
            state = ProcessState.DEAD if listens else ProcessState.STARTING
            return replace(process, state=state, last_error=answers.errors.get(name, process.last_error))
    return None


def _silent(number: int, record: TopologyRecord, answers: ProcessReplies, young: bool) -> tuple[ProcessState, str]:
    """Return state and reason for the processes of a container that does not answer."""
    name = f"heron_container-{number}"
    if number in answers.containers:
        return ProcessState.STARTING, ""  # the container exists and has not started it yet
    known = _container_process(name, number, record, answers)
    if known is not None and known.state in (ProcessState.STARTING, ProcessState.RESTARTING):
        return ProcessState.STARTING, ""
    if young and record.container(number) is None:
        return ProcessState.STARTING, ""
    return ProcessState.DEAD, answers.errors.get(name, f"container {number} is not available")


def iso(seconds: float) -> str | None:
    """Return seconds since 1970 as ISO 8601 in UTC; None for 0."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds") if seconds else None


def as_json(status: TopologyStatus) -> dict[str, Any]:
    """Return the shape of ``heron status --output json``.

    ``doing``, ``update``, ``put_aside`` and ``late`` are present only with content, ``tasks_state`` only for stateful
    topologies.
    """
    execution = status.execution
    return {
        "cluster": execution.cluster,
        "role": execution.role,
        "environ": execution.environ,
        "topology": execution.topology,
        "state": status.state,
        "cause": status.cause() or None,
        "mode": status.mode or None,
        **({"put_aside": status.put_aside} if status.put_aside else {}),
        **({"late": dict(status.late)} if status.late else {}),
        "submitted_at": iso(execution.submitted_at),
        "code_user": status.code_user or None,
        "containers": [
            {"id": c.id, "host": c.host or None, "state": str(c.state), **({"trouble": c.trouble} if c.trouble else {})}
            for c in status.containers
        ],
        "processes": [
            {
                "kind": p.kind,
                "name": p.name,
                "container": p.container if p.container >= 0 else None,
                "component": p.component or None,
                "task": p.task or None,
                "pid": p.pid or None,
                "state": str(p.state),
                "since": iso(p.since),
                "restarts": p.restarts,
                "last_error": p.last_error or None,
                **({"doing": p.doing} if p.doing else {}),
            }
            for p in status.processes
        ],
        **({"update": status.update} if status.update else {}),
        **({"tasks_state": msgspec.to_builtins(status.tasks_state)} if status.tasks_state is not None else {}),
    }
