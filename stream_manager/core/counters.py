"""What a stream manager says of itself to the metrics manager: totals and gauges under the names of the registry."""

from __future__ import annotations

from heronry.model.causes import CauseKind
from heronry.model.metrics import keyed
from stream_manager.core.links import Link, Traffic
from stream_manager.core.stream_manager import StreamManager

_WHAT = (
    ("tuples", "tuples"),
    ("ack_tuples", "acks"),
    ("fail_tuples", "fails"),
    ("bytes", "bytes"),
    ("packets", "packets"),
    ("frames", "frames"),
)


def totals(core: StreamManager) -> dict[str, float]:
    """Counters since the process began."""
    found: dict[str, float] = {
        "__server/__time_spent_back_pressure_initiated": core.initiated_ms,
        "__server/__time_spent_back_pressure_aggr": core.paused_ms,
        "__back_pressure_starts": core.pressure.started,
        "__sequence_faults": core.outcome.sequence_faults,
        "__protocol_violations": core.outcome.violations,
        "__dropped_frames": core.flow.moved_frames,
        "__moved_tuples": core.flow.moved_tuples,
        "__roots_opened": core.tracking.opened,
        "__roots_completed": core.tracking.completed,
        "__roots_failed": core.tracking.failed,
        "__roots_expired": core.tracking.expired,
        "__late_acks": core.tracking.late,
    }
    for cause, slow_ms in core.pressure.slow_ms.items():
        about = _instance(core, cause.task) if cause.kind is CauseKind.TASK else f"stream_manager-{cause.peer}"
        name = keyed("__time_spent_back_pressure_by_compid", about)
        found[name] = found.get(name, 0) + slow_ms
    for task, instance in core.flow.instances.items():
        name = _instance(core, task)
        _traffic(found, "from_workers", name, instance.incoming.traffic)
        _traffic(found, "to_workers", name, instance.link.traffic_out)
        _lost(found, "to_workers", name, instance.link, core)
    for container, peer in core.flow.peers.items():
        name = f"stream_manager-{container}"
        _traffic(found, "from_stmgrs", name, peer.incoming.traffic)
        _traffic(found, "to_stmgrs", name, peer.link.traffic_out)
        _lost(found, "to_stmgrs", name, peer.link, core)
    return {name: float(value) for name, value in found.items()}


def gauges(core: StreamManager) -> dict[str, float]:
    """What is now."""
    found: dict[str, float] = {
        "__tracked_roots": core.tracking.live,
        "__peers_connected": sum(peer.link.is_open for peer in core.flow.peers.values()),
        "__instances_connected": sum(i.connection is not None for i in core.flow.instances.values()),
        "__plan_number": core.version.number,
    }
    for task, instance in core.flow.instances.items():
        found[keyed("__connection_buffer_by_instanceid", _instance(core, task))] = instance.link.bytes
    for container, peer in core.flow.peers.items():
        found[keyed("__connection_buffer_by_peer", f"stream_manager-{container}")] = peer.link.bytes
    return {name: float(value) for name, value in found.items()}


def _instance(core: StreamManager, task: int) -> str:
    return f"task_{task}" if core.routes is None else core.routes.instance_name(task)


def _traffic(found: dict[str, float], way: str, name: str, traffic: Traffic) -> None:
    for what, attribute in _WHAT:
        found[keyed(f"__server/__{what}_{way}", name)] = getattr(traffic, attribute)


def _lost(found: dict[str, float], way: str, name: str, link: Link, core: StreamManager) -> None:
    streams = () if core.plan is None else core.plan.streams
    for number, tuples in link.lost.items():
        component, stream = streams[number] if number < len(streams) else ("", str(number))
        found[keyed("__lost_on_break", name, component, stream)] = tuples
    if link.lost:
        found[keyed(f"__server/__tuples_{way}_lost", name)] = sum(link.lost.values())
