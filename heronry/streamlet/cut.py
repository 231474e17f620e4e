"""Segments of a program: the steps that an engine runs together, between one shuffle and the next. Pure.

Theory of operation. Every engine cuts at the reducers: the steps before a reducer and those after it run separately. A
*segment* is named by its entry, the step that it begins with. It contains every step that its records reach before the
next cut. A stream into the step that begins another segment is an *exchange*. An engine may cut at additional steps
(``begins``). Without such a cut, a step whose inputs are of several segments runs in each of them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from heronry.streamlet.program import Program, ReduceStep, Ref, SourceStep, Step


class Exchange(NamedTuple):
    """Stream that leaves its segment. ``reader`` is the step that begins another segment."""

    ref: Ref
    reader: str


@dataclass(frozen=True, slots=True)
class Segment:
    """Segment of a program. ``steps`` are in the program's order, the entry first."""

    entry: str
    steps: tuple[str, ...]
    exchanges: tuple[Exchange, ...]


def at_reducers(step: Step, entries: list[str]) -> bool:
    """Return True for the steps at which every engine cuts."""
    return isinstance(step, SourceStep | ReduceStep)


def split_into_segments(
    program: Program, begins: Callable[[Step, list[str]], bool] = at_reducers
) -> dict[str, Segment]:
    """Return the segments by their entries, inputs first.

    Args:
        program: The program.
        begins: Function that returns True if a segment begins at a step. It is called once for each step, in order,
            with the entries of the segments that the step reads. It must return True where ``at_reducers`` does.
    """
    steps: dict[str, list[str]] = {}
    exchanges: dict[str, list[Exchange]] = {}
    homes: dict[str, list[str]] = {}  # segments that contain a step
    for step in program.steps:
        entries = list(dict.fromkeys(entry for ref in step.inputs for entry in homes[ref.step]))
        if begins(step, entries):
            for ref in step.inputs:
                for entry in homes[ref.step]:
                    exchanges[entry].append(Exchange(ref, step.name))
            steps[step.name], exchanges[step.name] = [], []
            entries = [step.name]
        homes[step.name] = entries
        for entry in entries:
            steps[entry].append(step.name)
    return {
        entry: Segment(entry, tuple(inside), tuple(dict.fromkeys(exchanges[entry]))) for entry, inside in steps.items()
    }
