"""Metrics as lines of text: Graphite's plaintext protocol and StatsD's datagrams. Pure.

Both get the same names, made of parts that are safe in either (letters, digits, ``_`` and ``-``)::

    PREFIX.TOPOLOGY.COMPONENT.INSTANCE.METRIC[.KEY][.p50 | .p90 | .p99 | .count]

Totals over all incarnations go to Graphite, so a restart is no fall and ``perSecond()`` is the rate; StatsD wants
differences, so ``Differences`` remembers what was sent. Latencies are milliseconds.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from heron_runtime.model.sketch import Sketch

QUANTILES = (("p50", 0.5), ("p90", 0.9), ("p99", 0.99))
MAX_NAME = 250
_UNSAFE = re.compile(r"[^A-Za-z0-9_\-]+")


@dataclass(frozen=True, slots=True)
class ProcessValues:
    """What one process has to tell: totals over all incarnations, latest gauges."""

    component: str
    instance: str
    time: float
    counters: Mapping[str, float] = field(default_factory=dict)
    gauges: Mapping[str, float] = field(default_factory=dict)
    latencies: Mapping[str, Sketch] = field(default_factory=dict)


def metric_path(prefix: str, topology: str, values: ProcessValues, name: str) -> str:
    """The dotted name of a metric, at most MAX_NAME characters."""
    parts = [*prefix.split("."), topology, values.component, values.instance, *name.split("/")]
    safe = (_UNSAFE.sub("_", part) or "_" for part in parts if part)
    return ".".join(safe)[:MAX_NAME]


def graphite_lines(prefix: str, topology: str, processes: Iterable[ProcessValues]) -> Iterator[str]:
    """``name value time`` lines; a value that is no number is left out."""
    for process in processes:
        at = int(process.time)
        for name, value in _plain(process):
            if math.isfinite(value):
                yield f"{metric_path(prefix, topology, process, name)} {value:.12g} {at}\n"


def _plain(process: ProcessValues) -> Iterator[tuple[str, float]]:
    yield from process.counters.items()
    yield from process.gauges.items()
    for name, sketch in process.latencies.items():
        yield f"{name}/count", sketch.count
        for (suffix, _), value in zip(QUANTILES, sketch.quantiles(q for _, q in QUANTILES), strict=True):
            if value is not None:
                yield f"{name}/{suffix}", value


class Differences:
    """What StatsD is told: growth of counters since the last time, gauges, percentiles of what came since.

    ``take`` gives the lines; only ``sent`` makes them the past, so what could not be sent comes again.
    """

    def __init__(self) -> None:
        self._counters: dict[tuple[str, str], dict[str, float]] = {}
        self._sketches: dict[tuple[str, str], dict[str, Sketch]] = {}
        self._new_counters = self._counters
        self._new_sketches = self._sketches

    def sent(self) -> None:
        """The lines of the last ``take`` have left."""
        self._counters, self._sketches = self._new_counters, self._new_sketches

    def take(self, prefix: str, topology: str, processes: Iterable[ProcessValues]) -> list[str]:
        """The lines to send."""
        lines: list[str] = []
        self._new_counters, self._new_sketches = {}, {}
        for process in processes:
            key = (process.component, process.instance)
            sent = self._new_counters[key] = dict(self._counters.get(key, {}))
            for name, total in process.counters.items():
                growth = total - sent.get(name, 0.0)
                if growth > 0 and math.isfinite(growth):
                    sent[name] = total
                    lines.append(f"{metric_path(prefix, topology, process, name)}:{growth:.12g}|c")
            for name, value in process.gauges.items():
                if math.isfinite(value):
                    path = metric_path(prefix, topology, process, name)
                    # A sign would mean a change of the gauge; nought first makes a negative value absolute.
                    lines += [f"{path}:0|g"] if value < 0 else []
                    lines.append(f"{path}:{value:.12g}|g")
            seen = self._new_sketches[key] = dict(self._sketches.get(key, {}))
            for name, sketch in process.latencies.items():
                new = sketch - seen.get(name, Sketch())
                seen[name] = sketch
                for (suffix, _), quantile in zip(QUANTILES, new.quantiles(q for _, q in QUANTILES), strict=True):
                    if quantile is not None:
                        lines.append(f"{metric_path(prefix, topology, process, f'{name}/{suffix}')}:{quantile:.12g}|g")
        return lines


def datagrams(lines: Iterable[str], max_bytes: int) -> Iterator[bytes]:
    """Lines joined to datagrams of at most ``max_bytes``; a longer line is left out."""
    waiting: list[bytes] = []
    size = 0
    for line in lines:
        data = line.encode()
        if len(data) > max_bytes:
            continue
        if waiting and size + len(data) + 1 > max_bytes:
            yield b"\n".join(waiting)
            waiting, size = [], 0
        waiting.append(data)
        size += len(data) + 1
    if waiting:
        yield b"\n".join(waiting)
