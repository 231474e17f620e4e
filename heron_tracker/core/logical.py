"""The logical plan as Heron's tracker shows it: spouts and bolts by name, their streams, and how deep the graph is."""

from __future__ import annotations

from typing import Any

from heron_runtime.model.topology import ComponentSpec, GroupingSpec, InputSpec, TopologyDefinition
from heron_tracker.core.plain import public_config


def logical_plan(definition: TopologyDefinition) -> dict[str, Any]:
    """``{spouts, bolts, stages}``; ``stages`` is the number of edges of the longest path, plus one."""
    spouts = {spec.name: _spout(spec) for spec in definition.components if spec.is_spout}
    bolts = {spec.name: _bolt(spec) for spec in definition.components if not spec.is_spout}
    depths = depth_of(definition)
    return {"spouts": spouts, "bolts": bolts, "stages": max(depths.values(), default=-1) + 1}


def depth_of(definition: TopologyDefinition) -> dict[str, int]:
    """For each component the number of edges of the longest path to it; an edge that closes a circle does not count."""
    inputs = {spec.name: [i.component for i in spec.inputs] for spec in definition.components}
    depths: dict[str, int] = {}
    for name in inputs:
        _depth(name, inputs, depths)
    return depths


def _depth(name: str, inputs: dict[str, list[str]], depths: dict[str, int]) -> None:
    """Depth first, without recursion: a chain may be longer than Python's stack."""
    path: list[str] = [name]
    open_now: set[str] = set()
    while path:
        here = path[-1]
        if here in depths:
            path.pop()
            continue
        open_now.add(here)
        waiting = [s for s in inputs[here] if s in inputs and s not in depths and s not in open_now]
        if waiting:
            path.append(waiting[0])
            continue
        depths[here] = 1 + max((depths[s] for s in inputs[here] if s in depths), default=-1)
        open_now.discard(here)
        path.pop()


def grouping_text(grouping: GroupingSpec) -> str:
    """A grouping in Heron's words: ``SHUFFLE``, ``FIELDS(word)``."""
    text = grouping.kind.value.upper()
    return f"{text}({', '.join(grouping.fields)})" if grouping.fields else text


def _spout(spec: ComponentSpec) -> dict[str, Any]:
    config = public_config(spec.config)
    return {
        "config": config,
        "spout_type": str(config.get("spout.type", "default")),
        "spout_source": str(config.get("spout.source", "NA")),
        "version": str(config.get("spout.version", "NA")),
        "outputs": _outputs(spec),
        "parallelism": spec.parallelism,
        "extra_links": [],
    }


def _bolt(spec: ComponentSpec) -> dict[str, Any]:
    return {
        "config": public_config(spec.config),
        "outputs": _outputs(spec),
        "inputs": [_input(i) for i in spec.inputs],
        "inputComponents": list(dict.fromkeys(i.component for i in spec.inputs)),
        "input_components": list(dict.fromkeys(i.component for i in spec.inputs)),
        "parallelism": spec.parallelism,
    }


def _outputs(spec: ComponentSpec) -> list[dict[str, Any]]:
    return [{"stream_name": out.name, "fields": list(out.fields)} for out in spec.outputs]


def _input(source: InputSpec) -> dict[str, str]:
    return {
        "stream_name": source.stream,
        "component_name": source.component,
        "grouping": grouping_text(source.grouping),
    }
