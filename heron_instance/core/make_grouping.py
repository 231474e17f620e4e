"""The grouping of an edge, as a task applies it under a plan."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import numpy as np

from heron_instance.core.groupings import All, Custom, Direct, Global, Grouping, OneOfMany, Shuffle
from heron_instance.core.key_groupings import Fields, PartialKey
from heron_runtime.model.plan import PhysicalPlan
from heron_runtime.model.topology import KEYED, Edge, GroupingKind


def make_grouping(
    edge: Edge,
    plan: PhysicalPlan,
    task: int,
    rng: np.random.Generator,
    *,
    load: Callable[[str], Any] | None = None,
    context: Any = None,
    direct_readers: int = 1,
) -> Grouping | None:
    """The grouping of ``edge`` as ``task`` applies it; None while the destination has no task.

    ``rng`` gives shuffle its random start; ``load`` turns ``module:Class`` into the class.
    """
    tasks = plan.tasks_of(edge.destination)
    if not tasks:
        return None
    where = f"stream {edge.source}/{edge.stream}"
    kind = edge.grouping.kind
    if kind is GroupingKind.ALL:
        return All(tasks)
    if kind is GroupingKind.GLOBAL:
        return Global(tasks)
    if kind in KEYED:
        schema = plan.topology.component(edge.source).output(edge.stream)
        fields = schema.fields if schema else ()
        positions = tuple(fields.index(name) for name in edge.grouping.fields)
        by_key = Fields if kind is GroupingKind.FIELDS else PartialKey
        return by_key(tasks, plan.key_group_table(edge.destination), positions)
    if kind is GroupingKind.DIRECT:
        return Direct(tasks, where) if direct_readers == 1 else OneOfMany(tasks, where)
    if kind is GroupingKind.CUSTOM:
        if load is None:
            raise ValueError(f"{where}: no loader for the custom grouping {edge.grouping.python_class}")
        arguments = msgspec.msgpack.decode(edge.grouping.arguments) if edge.grouping.arguments else {}
        chooser = load(edge.grouping.python_class)(**arguments)
        chooser.prepare(context, edge.source, edge.stream, list(tasks))
        return Custom(tasks, chooser, where)
    if kind is GroupingKind.LOCAL_OR_SHUFFLE:
        here = plan.container_of(task)
        tasks = tuple(t for t in tasks if plan.container_of(t) == here) or tasks
    return Shuffle(tasks, int(rng.integers(0, len(tasks))))
