"""Fused record-wise steps, which turn one block into a block for each output.

Steps work on whole lists, so the engine adds no call per record.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable
from itertools import compress
from operator import length_hint
from typing import Any

from heronry.streamlet.columns import each
from heronry.streamlet.errors import StepFailed, shown
from heronry.streamlet.lookup import LookupTable
from heronry.streamlet.online.block import Block
from heronry.streamlet.program import (
    BranchStep,
    FilterStep,
    FlatMapStep,
    LogStep,
    LookupStep,
    MapStep,
    Program,
    Ref,
    SchemaStep,
    TapStep,
    UnionStep,
)

Streams = dict[Ref, Block]


class StepChain:
    """Record-wise steps of one stage, in order. Steps whose input is absent are skipped."""

    def __init__(self, program: Program, steps: tuple[str, ...], log: logging.Logger) -> None:
        self._log = log
        makers: dict[type, Callable[[Any], Callable[[Block], dict[int, Block]]]] = {
            MapStep: self._map,
            SchemaStep: self._map,
            FlatMapStep: self._flat_map,
            FilterStep: self._filter,
            BranchStep: self._branch,
            TapStep: self._tap,
            LogStep: self._write,
            LookupStep: self._lookup,
            UnionStep: self._union,
        }
        chain_steps = [program.by_name[name] for name in steps]
        self._steps = [(step, makers[type(step)](step)) for step in chain_steps if type(step) in makers]
        readers = Counter(ref for step in program.steps for ref in step.inputs)
        self._shared = {ref for ref, count in readers.items() if count > 1}

    def run(self, ref: Ref, block: Block) -> Streams:
        """Return every stream that results from this one, including itself.

        Raises:
            StepFailed: A function failed on a record.
        """
        streams: Streams = {ref: block}
        for step, apply in self._steps:
            for before in step.inputs:
                entering = streams.get(before)
                if entering is not None:
                    if before in self._shared:  # functions may change records in place
                        entering = entering.copied()
                    for output, made in apply(entering).items():
                        place = Ref(step.name, output)
                        streams[place] = joined(streams[place], made) if place in streams else made
        return streams

    def _map(self, step: MapStep) -> Callable[[Block], dict[int, Block]]:
        function = step.function

        def apply(block: Block) -> dict[int, Block]:
            return {0: block.like(each(step.name, function, block.records))}

        return apply

    def _flat_map(self, step: FlatMapStep) -> Callable[[Block], dict[int, Block]]:
        function = step.function

        def listed(record: Any) -> list[Any]:
            return list(function(record))

        def apply(block: Block) -> dict[int, Block]:
            if block.times_ms is None and block.ids is None:
                remaining = iter(block.records)
                try:
                    return {0: Block([element for record in remaining for element in function(record)])}
                except Exception as error:
                    raise StepFailed(step.name, block.records[-1 - length_hint(remaining)]) from error
            return {0: block.flattened(each(step.name, listed, block.records))}

        return apply

    def _lookup(self, step: LookupStep) -> Callable[[Block], dict[int, Block]]:
        function = LookupTable(step)
        function.load()  # now, rather than at the first record
        return lambda block: {0: block.flattened(each(step.name, function, block.records))}

    def _filter(self, step: FilterStep) -> Callable[[Block], dict[int, Block]]:
        def apply(block: Block) -> dict[int, Block]:
            wanted = each(step.name, step.function, block.records)
            if any(kind.__module__ != "builtins" for kind in {*map(type, wanted)}):
                truths = iter(wanted)  # an array of numpy, for example, has no truth value
                try:
                    wanted = [bool(truth) for truth in truths]
                except Exception as error:
                    raise StepFailed(step.name, block.records[-1 - length_hint(truths)]) from error
            if block.times_ms is None and block.ids is None:
                return {0: Block(list(compress(block.records, wanted)))}
            return {0: block.picked(list(compress(range(len(wanted)), wanted)))}

        return apply

    def _branch(self, step: BranchStep) -> Callable[[Block], dict[int, Block]]:
        last = len(step.predicates)

        def choose(record: Any) -> int:
            return next((n for n, predicate in enumerate(step.predicates) if predicate(record)), last)

        def apply(block: Block) -> dict[int, Block]:
            places: list[list[int]] = [[] for _ in range(last + 1)]
            for place, output in enumerate(each(step.name, choose, block.records)):
                places[output].append(place)
            return {output: block.picked(picked_places) for output, picked_places in enumerate(places) if picked_places}

        return apply

    def _tap(self, step: TapStep) -> Callable[[Block], dict[int, Block]]:
        def apply(block: Block) -> dict[int, Block]:
            each(step.name, step.function, block.records)
            return {0: block}

        return apply

    def _write(self, step: LogStep) -> Callable[[Block], dict[int, Block]]:
        level = getattr(logging, step.level)

        def apply(block: Block) -> dict[int, Block]:
            if self._log.isEnabledFor(level):
                for record in block.records:
                    self._log.log(level, "%s: %s", step.name, shown(record))
            return {0: block}

        return apply

    def _union(self, step: UnionStep) -> Callable[[Block], dict[int, Block]]:
        return lambda block: {0: block}


def joined(a: Block, b: Block) -> Block:
    """Return the concatenation of two blocks."""
    return Block(
        a.records + b.records,
        None if a.times_ms is None or b.times_ms is None else a.times_ms + b.times_ms,
        None if a.ids is None or b.ids is None else a.ids + b.ids,
    )
