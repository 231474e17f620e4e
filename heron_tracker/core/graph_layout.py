"""Layout of the logical plan: layers from left to right, coordinates in abstract pixels.

After Sugiyama, Tagawa and Toda 1981: a component's layer is the number of edges of the longest path to it. An edge
that spans several layers passes through an invisible node in each layer between. A few sweeps improve the order
within a layer by putting every node at the mean of its neighbours; then columns are centred. The layout is
deterministic.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

from heron_runtime.model.topology import TopologyDefinition
from heron_tracker.core.heron_plans import component_depths, format_grouping

NODE_WIDTH, NODE_HEIGHT = 184, 84
COLUMN_GAP, ROW_GAP = 96, 28
BEND_HEIGHT = 20  # height of an edge that passes through a layer
MARGIN = 16
SWEEPS = 8


@dataclass(frozen=True, slots=True)
class PlacedNode:
    """A component and its box: left, top, width, height."""

    name: str
    layer: int
    x: float
    y: float
    width: float = NODE_WIDTH
    height: float = NODE_HEIGHT


@dataclass(frozen=True, slots=True)
class PlacedEdge:
    """All streams between two components, and the points of the line."""

    source: str
    destination: str
    streams: tuple[tuple[str, str], ...]  # (stream, grouping)
    points: tuple[tuple[float, float], ...]


@dataclass(frozen=True, slots=True)
class GraphDrawing:
    """Layout of the whole graph."""

    nodes: tuple[PlacedNode, ...]
    edges: tuple[PlacedEdge, ...]
    width: float
    height: float


_Key = tuple[str, str, int]  # (component, "", -1), or (source, destination, layer) for a bend


def layout_graph(definition: TopologyDefinition) -> GraphDrawing:
    """Return the layout of a topology. Edges to unknown components are omitted."""
    layer_of = component_depths(definition)
    streams: dict[tuple[str, str], list[tuple[str, str]]] = {}
    for edge in definition.edges():
        if edge.source in layer_of:
            streams.setdefault((edge.source, edge.destination), []).append(
                (edge.stream, format_grouping(edge.grouping))
            )
    layers: list[list[_Key]] = [[] for _ in range(max(layer_of.values(), default=-1) + 1)]
    for spec in definition.components:
        layers[layer_of[spec.name]].append((spec.name, "", -1))
    paths: dict[tuple[str, str], list[_Key]] = {}
    for source, destination in streams:
        between = range(layer_of[source] + 1, layer_of[destination])
        bends: list[_Key] = [(source, destination, layer) for layer in between]
        for bend in bends:
            layers[bend[2]].append(bend)
        paths[source, destination] = [(source, "", -1), *bends, (destination, "", -1)]
    _untangle(layers, paths)
    return _place(layers, layer_of, paths, streams)


def _untangle(layers: list[list[_Key]], paths: dict[tuple[str, str], list[_Key]]) -> None:
    """Sort every layer by the mean position of the neighbours, forward and backward in turn."""
    before: dict[_Key, list[_Key]] = {}
    after: dict[_Key, list[_Key]] = {}
    for path in paths.values():
        for left, right in pairwise(path):
            before.setdefault(right, []).append(left)
            after.setdefault(left, []).append(right)
    for sweep in range(SWEEPS):
        neighbours = before if sweep % 2 == 0 else after
        order = layers if sweep % 2 == 0 else layers[::-1]
        position = {key: _relative(n, layer) for layer in layers for n, key in enumerate(layer)}
        for layer in order:
            where = {key: position[key] for key in layer}
            for key in layer:
                near = neighbours.get(key, [])
                if near:
                    where[key] = sum(position[k] for k in near) / len(near)
            layer.sort(key=lambda key: where[key])
            for n, key in enumerate(layer):
                position[key] = _relative(n, layer)


def _relative(n: int, layer: list[_Key]) -> float:
    return n - (len(layer) - 1) / 2


def _height(key: _Key) -> int:
    return BEND_HEIGHT if key[2] >= 0 else NODE_HEIGHT


def _place(
    layers: list[list[_Key]],
    layer_of: dict[str, int],
    paths: dict[tuple[str, str], list[_Key]],
    streams: dict[tuple[str, str], list[tuple[str, str]]],
) -> GraphDrawing:
    heights = [sum(map(_height, layer)) + ROW_GAP * (len(layer) - 1) for layer in layers]
    tallest = max(heights, default=0)
    at: dict[_Key, tuple[float, float]] = {}
    for number, layer in enumerate(layers):
        y = MARGIN + (tallest - heights[number]) / 2
        for key in layer:
            at[key] = (MARGIN + number * (NODE_WIDTH + COLUMN_GAP), y)
            y += _height(key) + ROW_GAP
    nodes = tuple(PlacedNode(key[0], layer_of[key[0]], *at[key]) for layer in layers for key in layer if key[2] < 0)
    edges = tuple(
        PlacedEdge(source, destination, tuple(streams[source, destination]), tuple(_points(path, at)))
        for (source, destination), path in paths.items()
    )
    width = 2 * MARGIN + max(0, len(layers) * (NODE_WIDTH + COLUMN_GAP) - COLUMN_GAP)
    return GraphDrawing(nodes, edges, width, tallest + 2 * MARGIN)


def _points(path: list[_Key], at: dict[_Key, tuple[float, float]]) -> list[tuple[float, float]]:
    x, y = at[path[0]]
    points = [(x + NODE_WIDTH, y + NODE_HEIGHT / 2)]
    for key in path[1:-1]:
        x, y = at[key]
        points += [(x, y + BEND_HEIGHT / 2), (x + NODE_WIDTH, y + BEND_HEIGHT / 2)]
    x, y = at[path[-1]]
    return [*points, (x, y + NODE_HEIGHT / 2)]
