"""Scaling advice: the number of tasks that components need, from what they did. Pure.

Theory of operation, after Kalavri et al., *Three steps is all you need* (DS2, OSDI 2018). The capacity of a task does
not show in its throughput, because it may wait. It shows in its throughput *while it works*: tuples per second of busy
time, its **true rate**. The demand of a component is what it did in its busy minutes, times what its spouts would have
sent without backpressure: a spout that was paused half of its time would have sent twice as much. That factor is passed
down the graph along the tuples counted on each edge. Then

load = demand / (true rate x tasks)        0: idle, 1: fully used, above: overloaded

Above ``HIGH`` the advice is as many tasks as bring the load to ``TARGET``; below ``LOW`` likewise; in between nothing
is changed. ``TARGET`` is twice ``LOW`` and below ``HIGH``, so that advice which is followed causes no further advice
while the cost per tuple stays the same.

Spouts get no advice, because how far a source can be split is unknown here. More tasks do not help either if a single
key has all the load; this is reported as ``skew``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

TARGET, HIGH, LOW = 0.7, 0.85, 0.35
MAX_FACTOR = 10.0  # limit for spouts that were throttled nearly always
MAX_TASKS = 65_535
MIN_BUSY_SECS, MIN_TUPLES = 1.0, 100.0  # minimum for a meaningful result
SKEWED = 1.5  # ratio of the busiest task to the mean
PEAK = 0.95  # quantile of the minutes


@dataclass(frozen=True, slots=True)
class TaskLoad:
    """Work of one task. ``caused_secs`` is how long it caused backpressure."""

    instance: str
    tuples: float = 0.0
    busy_secs: float = 0.0
    idle_secs: float = 0.0
    held_secs: float = 0.0
    caused_secs: float = 0.0
    cpu_secs: float = 0.0
    memory_bytes: float = 0.0


@dataclass(frozen=True, slots=True)
class ComponentLoad:
    """Work of one component.

    ``edges``: tuples by the component they came from. ``rates``: tuples per second of all its tasks, minute by minute.
    """

    name: str
    is_spout: bool
    parallelism: int
    tasks: tuple[TaskLoad, ...] = ()
    edges: Mapping[str, float] = field(default_factory=dict)
    rates: tuple[float, ...] = ()

    @property
    def tuples(self) -> float:
        """Tuples executed by a bolt or emitted by a spout."""
        return sum(task.tuples for task in self.tasks)

    @property
    def busy_secs(self) -> float:
        """Busy seconds of all tasks."""
        return sum(task.busy_secs for task in self.tasks)

    @property
    def caused_secs(self) -> float:
        """Seconds of backpressure caused by all tasks."""
        return sum(task.caused_secs for task in self.tasks)

    @property
    def held(self) -> float:
        """Share of the time that tasks were held back, 0 to 1."""
        held = sum(task.held_secs for task in self.tasks)
        whole = held + self.busy_secs + sum(task.idle_secs for task in self.tasks)
        return held / whole if whole > 0 else 0.0

    @property
    def true_rate(self) -> float | None:
        """Tuples per busy second of one task; None with too little data."""
        if self.busy_secs < MIN_BUSY_SECS or self.tuples < MIN_TUPLES:
            return None
        return self.tuples / self.busy_secs

    @property
    def peak(self) -> float:
        """Tuples per second exceeded in one of twenty minutes only."""
        ordered = sorted(self.rates)
        return ordered[math.ceil(PEAK * len(ordered)) - 1] if ordered else 0.0

    @property
    def skew(self) -> tuple[str, float] | None:
        """Busiest task and its work relative to the mean; None if the work is even."""
        if len(self.tasks) < 2 or self.busy_secs < MIN_BUSY_SECS:
            return None
        hottest = max(self.tasks, key=lambda task: (task.busy_secs, task.instance))
        times = hottest.busy_secs * len(self.tasks) / self.busy_secs
        return (hottest.instance, times) if times >= SKEWED else None


@dataclass(frozen=True, slots=True)
class Advised:
    """Advice for one component. ``load`` and ``demand`` (tuples per second) are None with too little data."""

    component: ComponentLoad
    tasks: int
    demand: float | None
    load: float | None
    why: str

    @property
    def changes(self) -> bool:
        """True if another number of tasks is advised."""
        return self.tasks != self.component.parallelism


@dataclass(frozen=True, slots=True)
class Advice:
    """Advice for a topology; ``bottleneck`` is the component with the highest load, or None."""

    components: tuple[Advised, ...]
    bottleneck: Advised | None
    notes: tuple[str, ...]

    def command(self, target: str, topology: str) -> str:
        """Return the command that follows the advice, or ""."""
        changes = [f"--component-parallelism {a.component.name}:{a.tasks}" for a in self.components if a.changes]
        return " ".join(["heron update", target, topology, *changes]) if changes else ""


def advise(components: Sequence[ComponentLoad]) -> Advice:
    """Return the advice for these components."""
    factors = unheld(components)
    advised = tuple(_advised(each, factors[each.name]) for each in components)
    known = [each for each in advised if each.load is not None]
    bottleneck = max(known, key=lambda each: each.load or 0.0, default=None)
    return Advice(advised, bottleneck, tuple(_notes(advised)))


def unheld(components: Sequence[ComponentLoad]) -> dict[str, float]:
    """Return the factor by which each component's work would grow without backpressure on spouts."""
    factors = {each.name: min(1 / (1 - each.held), MAX_FACTOR) if each.held < 1 else MAX_FACTOR for each in components}
    factors |= {each.name: 1.0 for each in components if not each.is_spout}
    for _ in components:  # at most the depth of the graph
        for each in components:
            whole = sum(each.edges.values())
            if not each.is_spout and whole > 0:
                factors[each.name] = sum(n * factors.get(source, 1.0) for source, n in each.edges.items()) / whole
    return factors


def tasks_for(demand: float, true_rate: float, parallelism: int) -> int:
    """Return the number of tasks needed; the current number unless the load is below ``LOW`` or above ``HIGH``."""
    load = demand / (true_rate * parallelism)
    if LOW <= load <= HIGH:
        return parallelism
    needed = min(max(1, math.ceil(demand / (true_rate * TARGET))), MAX_TASKS)
    return max(needed, parallelism) if load > HIGH else min(needed, parallelism)


def _advised(each: ComponentLoad, factor: float) -> Advised:
    true_rate = each.true_rate
    if true_rate is None or each.parallelism < 1:
        return Advised(each, each.parallelism, None, None, "too little was seen")
    demand = each.peak * factor
    load = demand / (true_rate * each.parallelism)
    if each.is_spout:
        why = f"busy {load:.0%} at its full rate" if load > HIGH else ""
        return Advised(each, each.parallelism, demand, load, why)
    tasks = tasks_for(demand, true_rate, each.parallelism)
    return Advised(each, tasks, demand, load, _why(each, tasks, load, factor))


def _why(each: ComponentLoad, tasks: int, load: float, factor: float) -> str:
    more = f" without backpressure ({factor:.1f} times the observed input)" if factor > 1.05 else ""
    if tasks > each.parallelism:
        return f"load {load:.0%} at peaks{more}"
    return f"load {load:.0%} at peaks{more}: fewer tasks are enough" if tasks < each.parallelism else ""


def _notes(advised: Sequence[Advised]) -> list[str]:
    notes = []
    for each in sorted(advised, key=lambda a: -a.component.caused_secs):
        if each.component.caused_secs >= MIN_BUSY_SECS:
            notes.append(
                f"backpressure: {each.component.name} caused it for {each.component.caused_secs:.0f} s "
                f"({', '.join(_causes(each.component))})"
            )
    for each in advised:
        component, skew = each.component, each.component.skew
        if skew is not None:
            notes.append(
                f"skew: {skew[0]} worked {skew[1]:.1f} times as long as the mean task of {component.name}; "
                "more tasks do not help if a single key causes it"
            )
        if component.is_spout and each.load is not None and each.load > HIGH and component.held < 1 - HIGH:
            notes.append(f"{component.name} is limited by its tasks: add tasks if its source can be split")
    return notes


def _causes(component: ComponentLoad) -> list[str]:
    causes = sorted(component.tasks, key=lambda task: -task.caused_secs)[:3]
    return [f"{task.instance} {task.caused_secs:.0f} s" for task in causes if task.caused_secs > 0]
