"""A packing plan as plain data: what ``submit --dry-run`` prints as JSON, and the api server answers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from heron_runtime.model.containers import MASTER_RESOURCES, standbys_of
from heron_runtime.model.plan import NO_RESOURCES, PackingPlan


def describe(plan: PackingPlan, config: Mapping[str, Any]) -> dict[str, Any]:
    """Totals, the tasks of each component, and every container with its size (padding included) and its tasks; with
    standbys of the topology master their containers, which are in none of the totals.

    Cores, bytes, bytes; containers and tasks in order.
    """
    tasks = plan.instances()
    standbys = [{"container": number, **asdict(MASTER_RESOURCES)} for number in standbys_of(config)]
    total = sum((container.resources for container in plan.containers), NO_RESOURCES)
    return {
        "topology": plan.topology,
        "tasks": len(tasks),
        "total": {**asdict(total), "cpu": round(total.cpu, 6)},
        "components": dict(Counter(task.component for task in tasks)),
        "containers": [
            {
                "container": container.container,
                **asdict(container.resources),
                "instances": [
                    {"component": task.component, "task": task.task, **asdict(task.resources)}
                    for task in container.instances
                ],
            }
            for container in plan.containers
        ],
        **({"standbys": standbys} if standbys else {}),
    }
