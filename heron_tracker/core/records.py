"""What Heron's tracker shows of a topology beside its plans: states, metadata, locations, exceptions."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

from heron_control.inspection.kept_state import kept_state
from heron_runtime.model.ids import parse_instance_id
from heron_runtime.model.plan import Phase
from heron_runtime.model.records import TopologyRecord
from heron_runtime.model.topology import TopologyState
from heron_runtime.wire.master import MasterStatus
from heron_runtime.wire.metrics import ExceptionReport
from heron_tracker.core.logical import logical_plan
from heron_tracker.core.overview import tasks_state
from heron_tracker.core.physical import packing_plan, physical_plan, stream_manager_id
from heron_tracker.core.plain import public_config

STATUS_WORDS = {
    TopologyState.RUNNING: "Running",
    TopologyState.PAUSED: "Paused",
    TopologyState.KILLED: "Killed",
}

PHASE_WORDS = {Phase.RESTORING: "Restoring", Phase.FAILED: "Failed"}


def metadata(cluster: str, record: TopologyRecord) -> dict[str, Any]:
    """Who submitted it, when, and with which release."""
    execution = record.execution
    return {
        "cluster": cluster,
        "environ": execution.environ,
        "role": execution.role,
        "jobname": execution.topology,
        "submission_time": execution.submitted_at,
        "submission_user": execution.submission_user,
        "release_username": execution.submission_user,
        "release_tag": "",
        "release_version": execution.release_version,
        "instances": sum(len(plan.instances) for plan in record.packing.containers),
        "extra_links": [],
    }


def execution_state(cluster: str, record: TopologyRecord) -> dict[str, Any]:
    """Metadata, which parts are there, and the state in one word."""
    return {
        **metadata(cluster, record),
        **_presence(record),
        "has_tmaster_location": record.master is not None,
        "status": _status(record),
    }


def _status(record: TopologyRecord) -> str:
    """The wanted state, as in Heron; but what is being restored, or has failed, does not run, whatever is wanted."""
    word = STATUS_WORDS.get(record.execution.state, "Unknown")
    phase = record.physical.generation.phase if record.physical is not None else Phase.RUNNING
    return word if word == "Killed" or phase is Phase.RUNNING else PHASE_WORDS[phase]


def _presence(record: TopologyRecord) -> dict[str, bool]:
    return {
        "has_physical_plan": record.physical is not None,
        "has_packing_plan": True,
        "has_tmanager_location": record.master is not None,
        "has_scheduler_location": record.scheduler is not None,
    }


def scheduler_location(record: TopologyRecord) -> dict[str, Any] | None:
    """Where the scheduler listens; None while there is none. It speaks gRPC, so there is no page of it."""
    if record.scheduler is None:
        return None
    return {
        "name": record.execution.topology,
        "http_endpoint": f"{record.scheduler.host}:{record.scheduler.port}",
        "job_page_link": "",
    }


def master_location(record: TopologyRecord) -> dict[str, Any] | None:
    """Where the acting topology master listens; None while there is none. One port serves everything."""
    if record.master is None:
        return None
    port = record.master.port
    return {
        "name": record.execution.topology,
        "id": record.definition.id,
        "host": record.master.host,
        "controller_port": port,
        "server_port": port,
        "stats_port": port,
    }


def runtime_state(record: TopologyRecord, status: MasterStatus | None) -> dict[str, Any]:
    """Which parts are there and which stream managers are registered; without ``status`` none is known to be. Where
    state is kept: generation and checkpoints, too."""
    registered = {m.container: m.registered for m in status.stream_managers} if status else {}
    return {
        **_presence(record),
        "topology_version": str(record.physical.version) if record.physical else None,
        "stmgrs": {
            stream_manager_id(plan.container): {"is_registered": registered.get(plan.container, False)}
            for plan in record.packing.containers
        },
        **tasks_state(kept_state(record, status)),
    }


def info(cluster: str, record: TopologyRecord, status: MasterStatus | None) -> dict[str, Any]:
    """Everything at once."""
    return {
        "id": record.definition.id,
        "name": record.definition.name,
        "execution_state": execution_state(cluster, record),
        "logical_plan": logical_plan(record.definition),
        "metadata": metadata(cluster, record),
        "packing_plan": packing_plan(record.definition, record.packing),
        "physical_plan": plan_of(cluster, record),
        "runtime_state": runtime_state(record, status),
        "scheduler_location": scheduler_location(record),
        "tmanager_location": master_location(record),
    }


def plan_of(cluster: str, record: TopologyRecord) -> dict[str, Any] | None:
    """The physical plan; None while the stream managers have not all registered yet."""
    if record.physical is None:
        return None
    return physical_plan(cluster, record.execution, record.physical, record.containers)


def config(record: TopologyRecord) -> dict[str, Any]:
    """The topology's configuration, without secrets."""
    return public_config(record.definition.config)


def hosts(record: TopologyRecord) -> list[str]:
    """The machines that the topology is known to be on, sorted."""
    found = {location.host for location in record.containers}
    if record.physical is not None:
        found |= {manager.host for manager in record.physical.stream_managers}
    return sorted(found)


def exception(record: TopologyRecord, report: ExceptionReport) -> dict[str, Any]:
    """What user code raised, as Heron's tracker shows it, with its class, message and component beside."""
    try:
        location = record.container(parse_instance_id(report.instance).container)
    except ValueError:
        location = None
    return {
        "hostname": location.host if location else "",
        "instance_id": report.instance,
        "component": report.component,
        "class_name": report.class_name,
        "message": report.message,
        "stacktrace": report.traceback,
        "lasttime": _moment(report.last_time),
        "firsttime": _moment(report.first_time),
        "count": report.count,
        "logging": "",
    }


def exception_summary(reports: Iterable[ExceptionReport]) -> list[dict[str, Any]]:
    """How often each class of exception was raised, and when first and last."""
    by_class: dict[str, list[ExceptionReport]] = {}
    for report in reports:
        by_class.setdefault(report.class_name, []).append(report)
    return [
        {
            "class_name": name,
            "lasttime": _moment(max(r.last_time for r in found)),
            "firsttime": _moment(min(r.first_time for r in found)),
            "count": sum(r.count for r in found),
        }
        for name, found in sorted(by_class.items())
    ]


def _moment(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds")
