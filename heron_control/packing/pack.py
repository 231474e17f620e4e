"""``pack``: which task goes into which container. Pure: the same definition always gives the same plan.

Task ids count from 1, component by component in order of definition; containers count from 1.
"""

from __future__ import annotations

from typing import Protocol

from heron_control.packing.errors import PackingError
from heron_runtime.extensions import PACKING, ExtensionError
from heron_runtime.model.plan import PackingPlan
from heron_runtime.model.settings import Keys, setting
from heron_runtime.model.topology import TopologyDefinition


class PackingAlgorithm(Protocol):
    """What ``topology.packing`` names: a pure function. ``heron_control.packing.demand`` reads the settings for it."""

    def __call__(self, definition: TopologyDefinition) -> PackingPlan:
        """The plan: each task once, tasks and containers numbered as above. Raises PackingError where none is."""


def pack(definition: TopologyDefinition) -> PackingPlan:
    """The packing plan, by the algorithm that ``topology.packing`` names. Raises PackingError."""
    if not any(spec.parallelism > 0 for spec in definition.components):
        raise PackingError(f"topology {definition.name!r} has no tasks; give it a spout")
    name = setting(definition.config, Keys.TOPOLOGY_PACKING)
    try:
        algorithm: PackingAlgorithm = PACKING.load(name)
    except ExtensionError as error:
        raise PackingError(f"topology {definition.name!r}: {error}", error.cure) from error
    plan = algorithm(definition)
    fault = _fault(definition, plan)
    if fault:
        raise PackingError(f"topology {definition.name!r}: the packing algorithm {name!r} {fault}")
    return plan


def _fault(definition: TopologyDefinition, plan: PackingPlan) -> str:
    """What every other part relies on and an algorithm got wrong."""
    wanted = [(spec.name, index) for spec in definition.components for index in range(spec.parallelism)]
    packed = [(task.task, task.component, task.component_index) for task in plan.instances()]
    if packed != [(task, *place) for task, place in enumerate(wanted, 1)]:
        return "must pack each task once, numbered from 1 in the order of the definition"
    if [each.container for each in plan.containers] != list(range(1, len(plan.containers) + 1)):
        return "must number the containers from 1, in order"
    return ""
