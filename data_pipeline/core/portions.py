"""Portions: the intermediate results that a streaming run keeps between micro-batches. Pure.

Spark numbers micro-batches from 0 and may run the last one again over the same files. The portion ``N-N`` holds what
the scans and the units downstream of them make of micro-batch N. The portions 0 to N, joined, are ``0-N``. Accumulators
may be added in any order, so a batch over all consecutive portions from 0 gives the result of a batch over all the
input. A portion that another one covers is ignored, so it does not matter whether it still exists.

A reducer that SQL can compute from the files of a micro-batch is kept as *parts* (``shell/portions.py``), and its unit
does not emit accumulators for it. As long as all portions have parts with the same columns, SQL also computes the
result.

Where micro-batches append to servers (``stream_sinks.py``), an existing portion is never replaced. The records that
its tasks staged count from the moment the portion has its name, and a commit cannot be undone. Such a portion
therefore records what it has read.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

from data_pipeline.core.describe import described
from data_pipeline.core.plan import CannotPlan, Node, Plan, Scan, Unit
from heronry.streamlet.endpoints import FileSource, Source
from heronry.streamlet.program import ReduceStep
from heronry.streamlet.schema import RecordConverter
from heronry.streamlet.servers import ServerSource

_NAME = re.compile(r"(\d{1,18})-(\d{1,18})")


class Portion(NamedTuple):
    """Results of the micro-batches ``first`` to ``last``, inclusive."""

    first: int
    last: int

    @property
    def name(self) -> str:
        """Name of the portion's folder."""
        return f"{self.first}-{self.last}"


class Kept(NamedTuple):
    """Reducers whose results a portion holds.

    Attributes:
        parts: Reducer to the columns of its parts, as SQL declares them.
        merged: Reducers for which units have emitted accumulators.
    """

    parts: Mapping[str, str]
    merged: Collection[str]


def columns_of_parts(portions: Iterable[Kept]) -> dict[str, str]:
    """Return the reducers that SQL can compute from the parts of all portions, each with the columns of its parts."""
    joined_columns: dict[str, str] = {}
    others: set[str] = set()
    for portion in portions:
        others.update(portion.merged)
        others.update(
            name for name, columns in portion.parts.items() if joined_columns.setdefault(name, columns) != columns
        )
    return {name: columns for name, columns in joined_columns.items() if name not in others}


def without(scan: Scan, reducers: Collection[str]) -> Scan:
    """Return the scan with a unit that emits nothing to ``reducers``.

    The remaining outputs keep their tags. The scan has no unit if nothing is left of it.
    """
    if scan.unit is None:
        return scan
    nodes = scan.unit.rebuilt(partial(_without, reducers))
    outputs = tuple(output for output in scan.unit.outputs if output.step not in reducers)
    return replace(scan, unit=Unit(scan.unit.entry, nodes, outputs, scan.unit.timed) if nodes else None)


def _without(reducers: Collection[str], node: Node, outputs: tuple[tuple[Node, ...], ...]) -> Node | None:
    """Return None for one of these reducers, and for a step that led only to them.

    Taps and logs are kept even without readers.
    """
    if node.reduce is not None and node.step in reducers:
        return None
    is_end = node.kind in ("sink", "view", "reduce", "tap", "log")
    return replace(node, outputs=outputs) if any(outputs) or is_end else None


def by_parts(plan: Plan, reducers: Collection[str]) -> Plan:
    """Return the plan in which SQL adds up these reducers."""
    reductions = (
        replace(reduction, sql=reduction.sql or reduction.step.name in reducers) for reduction in plan.reductions
    )
    return replace(plan, reductions=tuple(reductions))


def cover(names: Iterable[str]) -> list[Portion]:
    """Return the fewest portions that hold each micro-batch from 0 exactly once, up to the first missing one."""
    longest: dict[int, int] = {}
    for name in names:
        match = _NAME.fullmatch(name)
        if match is not None and int(match[1]) <= int(match[2]):
            first = int(match[1])
            longest[first] = max(longest.get(first, first), int(match[2]))
    portions: list[Portion] = []
    begin = 0
    while begin in longest:
        portions.append(Portion(begin, longest[begin]))
        begin = longest[begin] + 1
    return portions


def holds(portions: Iterable[Portion], number: int) -> bool:
    """Return True if one of the portions holds the results of micro-batch ``number``."""
    return any(portion.first <= number <= portion.last for portion in portions)


def digest(read: Iterable[tuple[str, str]]) -> str:
    """Return a digest of the input of a micro-batch: pairs of a step and a file or range, in any order."""
    return hashlib.blake2b(repr(sorted(read)).encode(), digest_size=8).hexdigest()


def identity(plan: Plan) -> str:
    """Return the digest of a plan's steps, sources and sinks.

    Portions of a plan with another digest cannot be added to the plan's own. The digest names folders of checkpoints,
    so its ingredients must not change.
    """
    scans = [
        [scan.step, _source(scan.source), scan.from_ms, scan.to_ms, _unit(scan.unit) if scan.unit is not None else None]
        for scan in plan.scans
    ]
    reductions = [[*_reducer(reduction.step), reduction.inputs, _unit(reduction.unit)] for reduction in plan.reductions]
    outputs = [
        [output.step, type(output.sink).__name__, str(getattr(output.sink, "system", ""))] for output in plan.outputs
    ]
    document = json.dumps([1, plan.program, scans, reductions, outputs], default=str)
    return hashlib.blake2b(document.encode(), digest_size=8).hexdigest()


def former_identity(plan: Plan) -> str:
    """Return the digest by which earlier versions named the folder: that of the plan's description."""
    return hashlib.blake2b(described(plan).encode(), digest_size=8).hexdigest()


def _source(source: Source[Any]) -> list[Any]:
    if isinstance(source, FileSource):
        return ["files", source.path, source.format]
    return ["server", str(source), source.fields] if isinstance(source, ServerSource) else [source.kind]


def _reducer(step: ReduceStep) -> list[Any]:
    windowing = step.windowing
    window = windowing.window if windowing is not None else None
    window_settings = [window.length_ms, window.every_ms, window.merges] if window is not None else None
    return [step.name, repr(step.monoid), window_settings, step.process is not None]


def _unit(unit: Unit) -> list[Any]:
    nodes = unit.all_nodes()
    places = {id(node): place for place, node in enumerate(nodes)}
    rows = [
        [
            node.step, node.kind, [str(each.schema) for each in node.functions if isinstance(each, RecordConverter)],
            [[places[id(reader)] for reader in readers] for readers in node.outputs],
        ]
        for node in nodes
    ]  # fmt: skip
    return [rows, [places[id(node)] for node in unit.nodes], unit.timed]


def streamed(plan: Plan) -> list[Scan]:
    """Return the scans that are read by micro-batches: those of files and servers.

    All other sources are small and always available.

    Raises:
        CannotPlan: The program reads neither files nor servers, or a scan reads an archive.
    """
    scans = [scan for scan in plan.scans if isinstance(scan.source, FileSource | ServerSource)]
    if not scans:
        raise CannotPlan(
            f"program {plan.program!r} reads neither files nor servers, so it cannot be streamed: omit --mode"
        )
    for scan in scans:
        if isinstance(scan.source, FileSource) and scan.source.format == "archive":
            raise CannotPlan(
                f"step {scan.step!r}: an archive may hold duplicates after a fault, which only a full batch can "
                "remove: omit --mode"
            )
    return scans
