"""What a task counts, on its way to the process's telemetry."""

from __future__ import annotations

from typing import Protocol

from heronry.api.metrics import Sink


class TelemetrySink(Sink, Protocol):
    """The part of ``heron_runtime.telemetry.recorder.Telemetry`` that executors use."""

    def exception(self, class_name: str, message: str, traceback: str, now: float, n: int = 1) -> None:
        """Count an exception of user code, or ``n`` of a kind."""


class Counts:
    """Counters, added up here and handed over with each flush."""

    def __init__(self, telemetry: TelemetrySink) -> None:
        self._telemetry = telemetry
        self._counts: dict[str, float] = {}

    def __bool__(self) -> bool:
        return bool(self._counts)

    def count(self, name: str, n: float) -> None:
        """Add to a counter."""
        self._counts[name] = self._counts.get(name, 0) + n

    def hand_over(self) -> None:
        """Add all of them to the telemetry's."""
        for name, n in self._counts.items():
            self._telemetry.count(name, n)
        self._counts.clear()
