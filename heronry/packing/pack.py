"""``pack``: which task goes into which container. Pure: the same definition always gives the same plan.

Task ids count from 1, component by component in order of definition; containers count from 1.
"""

from __future__ import annotations

from collections.abc import Callable

from heronry.model.plan import PackingPlan
from heronry.model.settings import setting
from heronry.model.topology import TopologyDefinition
from heronry.packing.errors import PackingError
from heronry.packing.first_fit_decreasing import pack_first_fit_decreasing
from heronry.packing.round_robin import pack_round_robin

ALGORITHMS: dict[str, Callable[[TopologyDefinition], PackingPlan]] = {
    "round_robin": pack_round_robin,
    "first_fit_decreasing": pack_first_fit_decreasing,
}


def pack(definition: TopologyDefinition) -> PackingPlan:
    """The packing plan, by the algorithm that ``topology.packing`` names. Raises PackingError."""
    if not any(spec.parallelism > 0 for spec in definition.components):
        raise PackingError(f"topology {definition.name!r} has no tasks; give it a spout")
    name = setting(definition.config, "topology.packing")
    algorithm = ALGORITHMS.get(name)
    if algorithm is None:
        raise PackingError(
            f"topology {definition.name!r}: topology.packing is {name!r}; there are {', '.join(sorted(ALGORITHMS))}"
        )
    return algorithm(definition)
