"""Barriers as frames: they travel in a channel like its data, and stream managers do not tell them apart."""

from __future__ import annotations

import struct

from heron_instance.core.state.participant import Barrier
from heron_runtime.model.plan import PhysicalPlan
from heron_runtime.wire.data import BARRIER, Frame

_FIELDS = struct.Struct("<QQqQ")


class NoBarrier(ValueError):
    """A frame says that it is a barrier, and is none."""


def channels(plan: PhysicalPlan, component: str) -> tuple[list[int], list[int]]:
    """The tasks that a task of this component hears, and those that hear it, whatever the groupings: in order."""
    edges = list(plan.topology.edges())
    upstream = {edge.source for edge in edges if edge.destination == component}
    downstream = {edge.destination for edge in edges if edge.source == component}
    return _tasks_of(plan, upstream), _tasks_of(plan, downstream)


def _tasks_of(plan: PhysicalPlan, components: set[str]) -> list[int]:
    return sorted(task for name in components for task in plan.tasks_of(name))


def barrier_frame(source: int, destination: int, routing_version: int, barrier: Barrier) -> Frame:
    """The barrier on its way from one task to another."""
    values = _FIELDS.pack(barrier.generation, barrier.checkpoint, barrier.turn, barrier.count)
    return Frame(source, 0, destination, 0, routing_version, BARRIER, values)


def barrier_of(frame: Frame) -> Barrier:
    """The barrier in a frame. Raises NoBarrier."""
    if len(frame.values) != _FIELDS.size or frame.count:
        raise NoBarrier(f"{len(frame.values)} bytes for {frame.count} tuples from task {frame.source_task}")
    return Barrier(*_FIELDS.unpack(frame.values))
