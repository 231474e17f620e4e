"""Checks of a frozen topology definition. Pure.

``validate_definition`` reports every problem, one sentence each, with the component and the remedy. The checks do not
depend on how the definition was made, so that class bodies and builders follow the same rules.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator

from heron_runtime.failures import did_you_mean, listing
from heron_runtime.model.ids import KEY_GROUPS, MAX_TASK, is_safe_name
from heron_runtime.model.settings import Keys, setting
from heron_runtime.model.topology import KEYED, ComponentSpec, GroupingKind, InputSpec, TopologyDefinition
from heronry.api.config import Config

_FIELDS = GroupingKind.FIELDS
_RULE = "use letters, digits, '_', '-' and '.', a letter or '_' first, 128 characters at most, no '..'"
_COMPONENT_MAPS = (
    Config.TOPOLOGY_COMPONENT_CPUMAP,
    Config.TOPOLOGY_COMPONENT_RAMMAP,
    Config.TOPOLOGY_COMPONENT_DISKMAP,
)


def validate_definition(definition: TopologyDefinition, incomplete: Collection[str] = ()) -> list[str]:
    """Every fault of the definition, in the order of its components; empty for one that can run.

    ``incomplete`` names components some of whose inputs are left out here because they are faulty themselves.
    """
    problems = [*_names(definition)]
    for spec in definition.components:
        where = f"{spec.kind} {spec.name!r}"
        findings = [
            *_outputs(spec),
            *_place(spec, spec.name in incomplete),
            *_parallelism(spec),
            *_inputs(definition, spec),
        ]
        problems += [f"{where}: {problem}" for problem in findings]
    problems += [*_whole(definition), *_config(definition), *_cycles(definition), *_state(definition)]
    return problems


def find_name_problem(what: str, name: object) -> str | None:
    """Return the reason why a name is unsafe in file names, store paths and metric labels, None if it is safe."""
    if not isinstance(name, str):
        return f"the {what} name {name!r} is not a string; {_RULE}"
    if not is_safe_name(name):
        return f"the {what} name {name!r} is not valid in file names and store paths; {_RULE}"
    if name.startswith("__"):
        return f"the {what} name {name!r} begins with '__', as only Heronry's own metrics do; choose another"
    return None


def _names(definition: TopologyDefinition) -> Iterator[str]:
    names = [("topology", definition.name)] + [("component", spec.name) for spec in definition.components]
    for what, name in names:
        problem = find_name_problem(what, name)
        if problem is not None:
            yield problem
    for name, count in Counter(spec.name for spec in definition.components).items():
        if count > 1:
            yield f"{count} components are named {name!r}; names must differ, so rename all but one"


def _outputs(spec: ComponentSpec) -> Iterator[str]:
    for stream, count in Counter(schema.name for schema in spec.outputs).items():
        if count > 1:
            yield f"declares stream {stream!r} {count} times; plain field names in outputs make the stream 'default'"
    for schema in spec.outputs:
        problem = find_name_problem("stream", schema.name)
        if problem is not None:
            yield problem
        for name, count in Counter(schema.fields).items():
            if count > 1:
                yield f"stream {schema.name!r} has {count} fields named {name!r}; rename all but one"
        if "" in schema.fields:
            yield f"stream {schema.name!r} has a field without a name"


def _place(spec: ComponentSpec, incomplete: bool) -> Iterator[str]:
    if spec.is_spout and spec.inputs:
        yield "has inputs; a spout is a source and reads no stream: remove them, or make it a Bolt"
    if not spec.is_spout and not spec.inputs and not incomplete:
        yield "has no inputs, so it would never be called; give it inputs={source: Grouping.SHUFFLE}, or remove it"


def _parallelism(spec: ComponentSpec) -> Iterator[str]:
    if spec.parallelism < 1:
        yield f"parallelism is {spec.parallelism}; it needs at least one task: par=1"
    if spec.parallelism > KEY_GROUPS and any(i.grouping.kind in KEYED for i in spec.inputs):
        yield (
            f"parallelism is {spec.parallelism}, but grouping by fields divides keys among at most {KEY_GROUPS} tasks; "
            f"the others would stay idle: par={KEY_GROUPS}"
        )


def _inputs(definition: TopologyDefinition, spec: ComponentSpec) -> Iterator[str]:
    by_name = {source.name: source for source in definition.components}
    for (component, stream), count in Counter((i.component, i.stream) for i in spec.inputs).items():
        if count > 1:
            yield f"reads stream {stream!r} of {component!r} {count} times, so each tuple would come twice; keep one"
    for edge in spec.inputs:
        source = by_name.get(edge.component)
        if source is None:
            others = [name for name in by_name if name != spec.name]
            hint = did_you_mean(edge.component, others) or f"; the others are {listing(others)}"
            yield f"reads {edge.component!r}, which is not a component of this topology{hint}"
            continue
        yield from _stream(edge, source)


def _stream(edge: InputSpec, source: ComponentSpec) -> Iterator[str]:
    schema = source.output(edge.stream)
    if schema is None:
        streams = [output.name for output in source.outputs]
        if not streams:
            yield f"reads {source.name!r}, which emits nothing; declare outputs = [...] in its class"
        else:
            yield (
                f"reads stream {edge.stream!r} of {source.name!r}, which has the streams {listing(streams)}"
                f"{did_you_mean(edge.stream, streams)}"
            )
        return
    name = f"stream {edge.stream!r} of {source.name!r}"
    kind = edge.grouping.kind
    if kind is GroupingKind.DIRECT and not schema.direct:
        yield f"reads {name} with Grouping.DIRECT, but that stream is not direct; declare it Stream(..., direct=True)"
    if schema.direct and kind is not GroupingKind.DIRECT:
        yield f"reads {name}, which is direct, with grouping {kind.value!r}; use Grouping.DIRECT"
    if kind in KEYED:
        yield from _grouping_fields(edge, name, schema.fields)
    if kind is GroupingKind.CUSTOM and not edge.grouping.python_class:
        yield f"reads {name} with a custom grouping without a class; use Grouping.custom(MyGrouping)"


def _grouping_fields(edge: InputSpec, name: str, fields: tuple[str, ...]) -> Iterator[str]:
    if not edge.grouping.fields:
        yield f"groups {name} by no field; name at least one: Grouping.fields({', '.join(map(repr, fields[:1]))})"
    for field, count in Counter(edge.grouping.fields).items():
        if field not in fields:
            yield f"groups {name} by {field!r}; its fields are {listing(fields)}{did_you_mean(field, fields)}"
        elif count > 1:
            yield f"groups {name} by {field!r} {count} times; once is enough"


def _whole(definition: TopologyDefinition) -> Iterator[str]:
    if not definition.components:
        yield "has no components; it needs a spout and what reads it: words = WordSpout.spec()"
    elif not any(spec.is_spout for spec in definition.components):
        yield "has no spout, so no tuple would ever come; add one"
    tasks = sum(max(spec.parallelism, 0) for spec in definition.components)
    if tasks > MAX_TASK:
        largest = max(definition.components, key=lambda spec: spec.parallelism)
        yield (
            f"has {tasks} tasks in all; the limit is {MAX_TASK}. "
            f"The largest part are the {largest.parallelism} of {largest.name!r}: lower its par"
        )


def _config(definition: TopologyDefinition) -> Iterator[str]:
    names = [spec.name for spec in definition.components]
    for key in _COMPONENT_MAPS:
        for name in definition.config.get(key, {}):
            if name not in names:
                yield (
                    f"config key {key!r} names {name!r}, which is not a component of this topology"
                    f"{did_you_mean(name, names)}"
                )


def _state(definition: TopologyDefinition) -> Iterator[str]:
    """Return the problems of topologies with checkpoints."""
    if setting(definition.config, Keys.TOPOLOGY_RELIABILITY_MODE) != Config.EFFECTIVELY_ONCE:
        return
    for spec in definition.components:
        inputs = {f"{i.component}.{i.stream}": i.grouping.fields for i in spec.inputs if i.grouping.kind is _FIELDS}
        if len({len(fields) for fields in inputs.values()}) > 1:
            listed = "; ".join(f"{name} by {listing(fields)}" for name, fields in inputs.items())
            yield (
                f"{spec.kind} {spec.name!r}: its inputs are grouped by keys of different length ({listed}); with "
                f"{Config.EFFECTIVELY_ONCE} self.keyed has one kind of key: group all of them by equally many fields"
            )


def _cycles(definition: TopologyDefinition) -> Iterator[str]:
    for cycle in find_cycles(definition):
        path = " -> ".join((*cycle, cycle[0]))
        yield f"the streams form a cycle: {path}; remove one of these inputs, tuples must never come back"


def find_cycles(definition: TopologyDefinition) -> list[tuple[str, ...]]:
    """One cycle through each component at which a walk along the streams comes back, no component in two of them.

    Empty exactly if the graph has no cycle. The walk keeps its own stack: a chain may be longer than Python's.
    """
    readers: dict[str, list[str]] = {spec.name: [] for spec in definition.components}
    for edge in definition.edges():
        if edge.source in readers and edge.destination not in readers[edge.source]:
            readers[edge.source].append(edge.destination)
    cycles: list[tuple[str, ...]] = []
    done: set[str] = set()
    for start in readers:
        if start in done:
            continue
        path = [start]
        walks = [iter(readers[start])]
        while path:
            here = next(walks[-1], None)
            if here is None:
                done.add(path.pop())
                walks.pop()
            elif here in path:
                cycle = tuple(path[path.index(here) :])
                if not any(set(cycle) & set(other) for other in cycles):
                    cycles.append(cycle)
            elif here not in done:
                path.append(here)
                walks.append(iter(readers[here]))
    return cycles
