"""Documents in the format of Heron's tracker besides plans: states, locations, exceptions, log files, targets."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

from heron_control.inspection.tasks_state import read_tasks_state
from heron_runtime.failures import UsageError
from heron_runtime.model.ids import parse_instance_id
from heron_runtime.model.plan import GenerationPhase
from heron_runtime.model.records import TopologyRecord
from heron_runtime.model.topology import TopologyState
from heron_runtime.wire.container import FileInfo
from heron_runtime.wire.master import MasterStatus
from heron_runtime.wire.metrics import ExceptionReport
from heron_tracker.core.heron_plans import logical_plan, packing_plan, physical_plan, stream_manager_id
from heron_tracker.core.json_values import redact_config
from heron_tracker.core.overview import tasks_state_field

STATUS_WORDS = {
    TopologyState.RUNNING: "Running",
    TopologyState.PAUSED: "Paused",
    TopologyState.KILLED: "Killed",
}

PHASE_WORDS = {GenerationPhase.RESTORING: "Restoring", GenerationPhase.FAILED: "Failed"}


def metadata(cluster: str, record: TopologyRecord) -> dict[str, Any]:
    """Return user, time and release of the submission."""
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
    """Return metadata, available parts and the state."""
    return {
        **metadata(cluster, record),
        **_presence(record),
        "has_tmaster_location": record.master is not None,
        "status": _status(record),
    }


def _status(record: TopologyRecord) -> str:
    """Return the wanted state as Heron does, or the phase of a topology that is being restored or has failed."""
    word = STATUS_WORDS.get(record.execution.state, "Unknown")
    phase = record.physical.generation.phase if record.physical is not None else GenerationPhase.RUNNING
    return word if word == "Killed" or phase is GenerationPhase.RUNNING else PHASE_WORDS[phase]


def _presence(record: TopologyRecord) -> dict[str, bool]:
    return {
        "has_physical_plan": record.physical is not None,
        "has_packing_plan": True,
        "has_tmanager_location": record.master is not None,
        "has_scheduler_location": record.scheduler is not None,
    }


def scheduler_location(record: TopologyRecord) -> dict[str, Any] | None:
    """Return the address of the scheduler, or None. It speaks gRPC, so it has no page."""
    if record.scheduler is None:
        return None
    return {
        "name": record.execution.topology,
        "http_endpoint": f"{record.scheduler.host}:{record.scheduler.port}",
        "job_page_link": "",
    }


def master_location(record: TopologyRecord) -> dict[str, Any] | None:
    """Return the address of the acting topology master, or None. One port serves everything."""
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
    """Return the available parts, the registered stream managers, and the state of tasks.

    Without ``status`` no stream manager counts as registered.
    """
    registered = {m.container: m.registered for m in status.stream_managers} if status else {}
    return {
        **_presence(record),
        "topology_version": str(record.physical.version) if record.physical else None,
        "stmgrs": {
            stream_manager_id(plan.container): {"is_registered": registered.get(plan.container, False)}
            for plan in record.packing.containers
        },
        **tasks_state_field(read_tasks_state(record, status)),
    }


def info(cluster: str, record: TopologyRecord, status: MasterStatus | None) -> dict[str, Any]:
    """Return everything about a topology."""
    return {
        "id": record.definition.id,
        "name": record.definition.name,
        "execution_state": execution_state(cluster, record),
        "logical_plan": logical_plan(record.definition),
        "metadata": metadata(cluster, record),
        "packing_plan": packing_plan(record.definition, record.packing),
        "physical_plan": optional_physical_plan(cluster, record),
        "runtime_state": runtime_state(record, status),
        "scheduler_location": scheduler_location(record),
        "tmanager_location": master_location(record),
    }


def optional_physical_plan(cluster: str, record: TopologyRecord) -> dict[str, Any] | None:
    """Return the physical plan, or None until all stream managers have registered."""
    if record.physical is None:
        return None
    return physical_plan(cluster, record.execution, record.physical, record.containers)


def config(record: TopologyRecord) -> dict[str, Any]:
    """Return the topology's configuration without secrets."""
    return redact_config(record.definition.config)


def hosts(record: TopologyRecord) -> list[str]:
    """Return the known machines of the topology, sorted."""
    names = {location.host for location in record.containers}
    if record.physical is not None:
        names |= {manager.host for manager in record.physical.stream_managers}
    return sorted(names)


def exception(record: TopologyRecord, report: ExceptionReport) -> dict[str, Any]:
    """Return an exception of user code, with its class, message and component."""
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
    """Return the number of exceptions by class, with first and last time."""
    by_class: dict[str, list[ExceptionReport]] = {}
    for report in reports:
        by_class.setdefault(report.class_name, []).append(report)
    return [
        {
            "class_name": name,
            "lasttime": _moment(max(r.last_time for r in of_class)),
            "firsttime": _moment(min(r.first_time for r in of_class)),
            "count": sum(r.count for r in of_class),
        }
        for name, of_class in sorted(by_class.items())
    ]


def _moment(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds")


HERON_FOLDER = "log-files"


def relative_log_path(path: str) -> str:
    """Return a path relative to the log folder; empty for the folder. Raises UsageError.

    Heron's own scripts name the log folder ``./log-files``, with or without a slash at the end.
    """
    if any(0xD800 <= ord(c) <= 0xDFFF for c in path):
        raise UsageError("path: is not text")
    plain = path.removeprefix("./")
    return "" if plain in (HERON_FOLDER, ".") else plain.removeprefix(f"{HERON_FOLDER}/")


def decode_whole_characters(data: bytes, *, last: bool) -> tuple[str, int]:
    """Return text and consumed bytes.

    A character that is cut at the end is left for the next part, unless this is the last one.
    """
    keep = len(data)
    if not last:
        for back in range(1, min(4, keep) + 1):
            byte = data[-back]
            if byte >= 0xC0:  # first byte of a multi-byte character
                needs = 2 if byte < 0xE0 else 3 if byte < 0xF0 else 4
                keep -= back if needs > back and back < keep else 0
                break
            if byte < 0x80:
                break
    return data[:keep].decode(errors="replace"), keep


def describe_file(file: FileInfo) -> dict[str, Any]:
    """Return the entry of a file in the list of its folder."""
    when = datetime.fromtimestamp(file.modified_at, UTC)
    kind = "drwx------" if file.folder else "-rw-------"
    return {
        "path": file.path,
        "is_dir": file.folder,
        "size": file.size_bytes,
        "modified": when.isoformat(timespec="seconds"),
        "formatted_stat": f"{kind} {file.size_bytes:>12} {when:%Y-%m-%d %H:%M}",
    }


def prometheus_targets(cluster: str, record: TopologyRecord) -> list[dict[str, Any]]:
    """Return targets for Prometheus' ``http_sd_config``: one for each container that serves metrics.

    Hosts are as each container names itself: an address, or with Docker the container's name, which resolves in its
    network. Containers report port 0 until their metrics manager serves Prometheus, and always without such a sink;
    they are omitted.
    """
    labels = {
        "cluster": cluster,
        "role": record.execution.role,
        "environ": record.execution.environ,
        "__meta_heron_topology": record.definition.name,
    }
    return [
        {
            "targets": [_address(location.host, location.metrics_port)],
            "labels": {**labels, "__meta_heron_container": str(location.container)},
        }
        for location in record.containers
        if location.metrics_port
    ]


def _address(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
