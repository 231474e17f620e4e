"""Totals and gauges of the links of a stream manager, by metric name, and its bottleneck task."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from heron_runtime.model.dataflow import seconds_of
from heron_runtime.model.metrics import keyed
from heron_runtime.wire.master import NOBODY, Bottleneck
from stream_manager.core.connections import ConnectionTable, Neighbour, Peer
from stream_manager.core.credit import TupleWeights
from stream_manager.core.links import Link, LinkTraffic
from stream_manager.core.plan import PlanRoutes

_WHAT = (
    ("tuples", "tuples"),
    ("ack_tuples", "acks"),
    ("fail_tuples", "fails"),
    ("bytes", "bytes"),
    ("packets", "packets"),
    ("frames", "frames"),
)


def link_totals(connections: ConnectionTable, routes: PlanRoutes) -> dict[str, float]:
    """Return traffic and losses since the start of the process."""
    totals: dict[str, float] = {}
    for neighbour in connections.all():
        name = _name(neighbour, routes)
        is_peer = isinstance(neighbour, Peer)
        way_in, way_out = ("from_stmgrs", "to_stmgrs") if is_peer else ("from_workers", "to_workers")
        totals.update(_traffic(way_in, name, neighbour.traffic_in))
        totals.update(_traffic(way_out, name, neighbour.link.traffic_out))
        totals.update(_lost(way_out, name, neighbour.link, routes))
    return totals


def stale_totals(dropped: Mapping[int, int], routes: PlanRoutes) -> dict[str, float]:
    """Return the dropped tuples of closed generations, by component and stream."""
    return {keyed("__stale_generation", *_stream(number, routes)): tuples for number, tuples in dropped.items()}


def link_gauges(connections: ConnectionTable, routes: PlanRoutes, weights: TupleWeights) -> dict[str, float]:
    """Return the number of connections and the size of their queues."""
    instances, peers = connections.instances.values(), connections.peers.values()
    return {
        "__peers_connected": sum(peer.link.is_open for peer in peers),
        "__instances_connected": sum(instance.connection is not None for instance in instances),
        **{keyed("__connection_buffer_by_instanceid", _name(i, routes)): i.link.size_bytes() for i in instances},
        **{keyed("__connection_buffer_by_peer", _name(p, routes)): p.link.size_bytes() for p in peers},
        **{
            keyed("__queue_seconds_by_instanceid", routes.instance_name(task)): wait
            for task, wait in queue_seconds(connections, weights).items()
        },
    }


def queue_seconds(connections: ConnectionTable, weights: TupleWeights) -> dict[int, float]:
    """Return for each task with a queue here the duration of the work that waits in it, in seconds."""
    return {
        task: seconds_of(sum(frame.count for frame, _, _ in queue.frames) * weights.of(task))
        for neighbour in connections.all()
        for task, queue in neighbour.link.destinations.items()
    }


def find_bottleneck(connections: ConnectionTable, weights: TupleWeights, routes: PlanRoutes) -> Bottleneck:
    """Return the task with the most seconds of work queued here, or in one call of user code."""
    candidates = [
        Bottleneck(routes.component.get(task, ""), task, seconds)
        for task, seconds in queue_seconds(connections, weights).items()
        if seconds
    ]
    candidates += [
        Bottleneck(routes.component.get(task, ""), task, instance.in_call_ms / 1000, in_call=True)
        for task, instance in connections.instances.items()
        if instance.in_call_ms
    ]
    return max(candidates, key=lambda one: one.seconds, default=NOBODY)


def _name(neighbour: Neighbour, routes: PlanRoutes) -> str:
    link = neighbour.link
    return f"stream_manager-{link.container}" if link.container else routes.instance_name(link.task)


def _traffic(way: str, name: str, traffic: LinkTraffic) -> Iterator[tuple[str, float]]:
    for what, attribute in _WHAT:
        yield keyed(f"__server/__{what}_{way}", name), getattr(traffic, attribute)


def _lost(way: str, name: str, link: Link, routes: PlanRoutes) -> Iterator[tuple[str, float]]:
    for number, tuples in link.lost.items():
        yield keyed("__lost_on_break", name, *_stream(number, routes)), tuples
    if link.lost:
        yield keyed(f"__server/__tuples_{way}_lost", name), sum(link.lost.values())


def _stream(number: int, routes: PlanRoutes) -> tuple[str, str]:
    streams = routes.plan.streams
    return streams[number] if number < len(streams) else ("", str(number))
