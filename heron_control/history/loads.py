"""What components did, read from a topology's history: the facts that ``advice`` goes by."""

from __future__ import annotations

from collections import defaultdict

from heron_control.history.advice import ComponentLoad, TaskLoad
from heron_control.history.reading import History, Point, Question
from heron_runtime.model.history import LEVEL_MS, TopologySummary
from heron_runtime.model.metrics import split_name

EXECUTED, EMITTED = "__execute-count", "__emit-count"
BUSY, IDLE, HELD = "__busy-time-ms", "__idle-time-ms", "__backpressured-time-ms"
CAUSED = "__time_spent_back_pressure_by_compid"
CPU = ("__py-user-cpu-time-secs", "__py-sys-cpu-time-secs")
MEMORY = "__py-physical-memory-byte"
STEP_MS = LEVEL_MS["1m"]


def loads(history: History, about: TopologySummary, from_ms: int, to_ms: int) -> list[ComponentLoad]:
    """Of each component as it is now, within a span of time. Raises as ``History.points``."""
    names = (EXECUTED, EMITTED, BUSY, IDLE, HELD, CAUSED, *CPU, MEMORY)
    asked = Question(from_ms, to_ms, STEP_MS, metrics=names, by_instance=True)
    points = history.points(asked)
    caused: dict[str, float] = defaultdict(float)
    ours: dict[str, list[Point]] = defaultdict(list)
    for point in points:
        component, _, metric, _ = point.series
        base = split_name(metric)
        if base.base == CAUSED:
            caused[base.key] += point.total / 1000
        else:
            ours[component].append(point)
    first = from_ms - from_ms % STEP_MS
    found = []
    for part in about.parts:
        counted = EMITTED if part.is_spout else EXECUTED
        mine = ours[part.name]
        edges: dict[str, float] = defaultdict(float)
        minutes: dict[int, float] = defaultdict(float)
        for point in mine:
            base = split_name(point.series[2])
            if base.base == counted:
                minutes[point.start_ms] += point.total
                if not part.is_spout:
                    edges[base.key.rpartition("/")[0]] += point.total
        rates = tuple(
            count * 1000 / (min(at + STEP_MS, to_ms) - max(at, from_ms))
            for at, count in sorted(minutes.items())
            if at >= first and min(at + STEP_MS, to_ms) > max(at, from_ms)
        )
        by_task: dict[str, list[Point]] = defaultdict(list)
        for point in mine:
            by_task[point.series[1]].append(point)
        tasks = tuple(_task(name, by_task[name], counted, caused[name]) for name in sorted(by_task))
        found.append(ComponentLoad(part.name, part.is_spout, part.parallelism, tasks, dict(edges), rates))
    return found


def _task(instance: str, points: list[Point], counted: str, caused_secs: float) -> TaskLoad:
    total: dict[str, float] = defaultdict(float)
    memory = 0.0
    for point in points:
        base = split_name(point.series[2]).base
        total[base] += point.total
        if base == MEMORY and point.high is not None:
            memory = max(memory, point.high)
    return TaskLoad(
        instance, total[counted], total[BUSY] / 1000, total[IDLE] / 1000, total[HELD] / 1000, caused_secs,
        sum(total[name] for name in CPU), memory,
    )  # fmt: skip
