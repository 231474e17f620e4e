"""Validation of random topologies: every DAG is valid; one back edge or wrong name makes it invalid."""

from __future__ import annotations

from dataclasses import replace
from graphlib import CycleError, TopologicalSorter
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from heron_runtime.model.topology import (
    KEYED,
    ComponentKind,
    ComponentSpec,
    GroupingKind,
    GroupingSpec,
    InputSpec,
    StreamSchema,
    TopologyDefinition,
)
from heronry.api.validate import find_cycles, validate_definition

STREAMS = (StreamSchema("default", ("a", "b")), StreamSchema("direct", ("c",), direct=True))


def grouping(stream: str, kind: GroupingKind) -> GroupingSpec:
    if stream == "direct":
        return GroupingSpec(GroupingKind.DIRECT)
    return GroupingSpec(kind, ("b",) if kind in KEYED else ())


@st.composite
def dags(draw: st.DrawFn) -> TopologyDefinition:
    """Draw spouts and bolts that read earlier components, listed in any order."""
    size = draw(st.integers(1, 8))
    spouts = draw(st.integers(1, size))
    kinds = st.sampled_from([k for k in GroupingKind if k not in (GroupingKind.DIRECT, GroupingKind.CUSTOM)])
    components = []
    for index in range(size):
        inputs: tuple[InputSpec, ...] = ()
        if index >= spouts:
            sources = st.tuples(st.integers(0, index - 1), st.sampled_from(["default", "direct"]))
            chosen = draw(st.sets(sources, min_size=1, max_size=3))
            inputs = tuple(InputSpec(f"c{s}", stream, grouping(stream, draw(kinds))) for s, stream in sorted(chosen))
        kind = ComponentKind.BOLT if inputs else ComponentKind.SPOUT
        components.append(ComponentSpec(f"c{index}", kind, "m:C", draw(st.integers(1, 5)), STREAMS, inputs))
    return TopologyDefinition("T", "T-1", tuple(draw(st.permutations(components))))


def with_input(definition: TopologyDefinition, name: str, edge: InputSpec) -> TopologyDefinition:
    components = tuple(
        replace(c, inputs=(*c.inputs, edge), kind=ComponentKind.BOLT) if c.name == name else c
        for c in definition.components
    )
    return replace(definition, components=components)


@given(dags())
def test_every_dag_is_valid(definition: TopologyDefinition) -> None:
    assert validate_definition(definition) == []


@given(dags(), st.data())
def test_back_edge_is_rejected_with_its_cycle(definition: TopologyDefinition, data: st.DataObject) -> None:
    start = data.draw(st.sampled_from([c.name for c in definition.components]))
    end = data.draw(st.sampled_from(sorted({start, *definition.reachable_from(start)})))
    broken = with_input(definition, start, InputSpec(end, "default", GroupingSpec(GroupingKind.SHUFFLE)))
    (problem,) = [p for p in validate_definition(broken) if "form a cycle" in p]
    path = problem.split(": ", 1)[1].split(";")[0].split(" -> ")
    edges = {(edge.source, edge.destination) for edge in broken.edges()}
    assert path[0] == path[-1]
    assert all(edge in edges for edge in pairwise(path))
    assert (end, start) in pairwise(path)


@given(st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6)), max_size=14))
def test_cycles_are_found_exactly_where_they_exist(pairs: list[tuple[int, int]]) -> None:
    components = tuple(
        ComponentSpec(
            f"c{n}", ComponentKind.BOLT, "m:C", 1, STREAMS,
            tuple(InputSpec(f"c{a}", "default", GroupingSpec(GroupingKind.SHUFFLE)) for a, b in pairs if b == n),
        )
        for n in range(7)
    )  # fmt: skip
    found = find_cycles(TopologyDefinition("T", "T-1", components))
    try:
        TopologicalSorter({b: {a for a, other in pairs if other == b} for _, b in pairs}).prepare()
        assert found == []
    except CycleError:
        edges = {(f"c{a}", f"c{b}") for a, b in pairs}
        assert found
        for cycle in found:
            assert all(edge in edges for edge in zip(cycle, (*cycle[1:], cycle[0]), strict=True))


@given(dags(), st.data())
def test_invalid_reference_is_rejected(definition: TopologyDefinition, data: st.DataObject) -> None:
    reader = data.draw(st.sampled_from([c.name for c in definition.components]))
    shuffle, by_field = GroupingSpec(GroupingKind.SHUFFLE), GroupingSpec(GroupingKind.FIELDS, ("z",))
    edge = data.draw(
        st.sampled_from(
            [
                InputSpec("nobody", "default", shuffle),
                InputSpec("c0", "nothing", shuffle),
                InputSpec("c0", "default", by_field),
                InputSpec("c0", "direct", shuffle),
                InputSpec("c0", "default", GroupingSpec(GroupingKind.DIRECT)),
            ]
        )
    )
    assert any(repr(reader) in problem for problem in validate_definition(with_input(definition, reader, edge)))


@given(dags(), st.data())
def test_duplicate_component_name_is_rejected(definition: TopologyDefinition, data: st.DataObject) -> None:
    twin = data.draw(st.sampled_from(definition.components))
    doubled = replace(definition, components=(*definition.components, twin))
    assert any(f"2 components are named {twin.name!r}" in problem for problem in validate_definition(doubled))


def test_stateful_topology_requires_keys_of_equal_length() -> None:
    exactly = {"topology.reliability.mode": "EFFECTIVELY_ONCE"}
    one, two = (GroupingSpec(GroupingKind.FIELDS, fields) for fields in (("a",), ("a", "b")))

    def topology(*groupings: GroupingSpec) -> TopologyDefinition:
        spouts = [ComponentSpec(f"s{n}", ComponentKind.SPOUT, "m:C", 1, STREAMS) for n in range(len(groupings))]
        inputs = tuple(InputSpec(f"s{n}", "default", grouping) for n, grouping in enumerate(groupings))
        bolt = ComponentSpec("b", ComponentKind.BOLT, "m:C", 1, (), inputs)
        return TopologyDefinition("T", "T-1", (*spouts, bolt), exactly)

    assert validate_definition(topology(one, one)) == []
    (problem,) = validate_definition(topology(one, two))
    assert "keys of different length" in problem
    assert validate_definition(replace(topology(one, two), config={})) == []


def test_chain_longer_than_the_stack_is_handled() -> None:
    shuffle = GroupingSpec(GroupingKind.SHUFFLE)
    components = [ComponentSpec("c0", ComponentKind.SPOUT, "m:C", 1, STREAMS)]
    components += [
        ComponentSpec(f"c{n}", ComponentKind.BOLT, "m:C", 1, STREAMS, (InputSpec(f"c{n - 1}", "default", shuffle),))
        for n in range(1, 1500)
    ]
    assert find_cycles(TopologyDefinition("T", "T-1", tuple(components))) == []
