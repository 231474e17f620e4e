"""What a process measures of itself: CPU, memory, descriptors, garbage collection, the lag of its event loop.

``ProcessStats`` belongs to no thread. Collections are timed by two calls of ours around each, in whichever thread the
interpreter collects; with the thresholds of the data plane's processes that is a few times a second at most.
``LoopLag`` belongs to one asyncio loop: a timer a second, and how late it came is how long everything else waited.
"""

from __future__ import annotations

import asyncio
import gc
import time
from typing import Any

import psutil

LAG_PROBE_SECONDS = 1.0


class GarbageClock:
    """The time the garbage collector has taken in this process since ``start``, in milliseconds."""

    def __init__(self) -> None:
        self.total_ms = 0.0
        self._began = 0.0
        self._started = False

    def start(self) -> None:
        """Begin to measure. Idempotent."""
        if not self._started:
            self._started = True
            gc.callbacks.append(self._collected)

    def stop(self) -> None:
        """Measure no more. Idempotent."""
        if self._started:
            self._started = False
            gc.callbacks.remove(self._collected)

    def _collected(self, phase: str, _: dict[str, Any]) -> None:
        now = time.perf_counter()
        if phase == "start":
            self._began = now
        elif self._began:
            self.total_ms += 1000 * (now - self._began)


GARBAGE = GarbageClock()  # there is one collector in a process


class ProcessStats:
    """Of this process. ``instance``: it runs user code, and has Heron's names for Python instances."""

    def __init__(self, *, instance: bool) -> None:
        self._instance = instance
        self._process = psutil.Process()
        GARBAGE.start()

    def read(self, uptime: float) -> tuple[dict[str, float], dict[str, float]]:
        """(counters, gauges) as of now; ``uptime`` in seconds."""
        with self._process.oneshot():
            cpu = self._process.cpu_times()
            memory = float(self._process.memory_info().rss)
            threads = float(self._process.num_threads())
            descriptors = float(self._process.num_fds())
        if self._instance:
            counters = {"__py-user-cpu-time-secs": cpu.user, "__py-sys-cpu-time-secs": cpu.system}
            gauges = {
                "__py-physical-memory-byte": memory,
                "__py-uptime-secs": uptime,
                "__py-fd-count": descriptors,
                "__py-thread-count": threads,
            }
        else:
            counters = {"__process/__cpu_user_usec": cpu.user * 1e6, "__process/__cpu_system_usec": cpu.system * 1e6}
            gauges = {
                "__process/__mem_used_bytes": memory,
                "__process/__uptime_sec": uptime,
                "__process/__fd_count": descriptors,
                "__process/__thread_count": threads,
            }
        counters["__gc-time-ms"] = GARBAGE.total_ms
        generations = zip(gc.get_count(), gc.get_threshold(), gc.get_stats(), strict=False)
        for number, (count, threshold, stats) in enumerate(generations, 1):
            if self._instance:
                gauges[f"__py-generation-{number}-count"] = float(count)
                gauges[f"__py-generation-{number}-collection-threshold"] = float(threshold)
            counters[f"__py-generation-{number}-collections"] = float(stats["collections"])
        return counters, gauges


class LoopLag:
    """How late the running event loop comes to its timers."""

    def __init__(self) -> None:
        self._worst_ms = 0.0
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Begin; to be called on the loop. Idempotent."""
        if self._timer is None:
            self._set()

    def stop(self) -> None:
        """End. Idempotent."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def take_ms(self) -> float:
        """The worst lag since the last call, in milliseconds; what a timer is late at this moment counts, too."""
        if self._timer is not None:
            late_ms = 1000 * (asyncio.get_running_loop().time() - self._timer.when())
            self._worst_ms = max(self._worst_ms, late_ms)
        worst, self._worst_ms = self._worst_ms, 0.0
        return worst

    def _set(self) -> None:
        loop = asyncio.get_running_loop()
        due = loop.time() + LAG_PROBE_SECONDS
        self._timer = loop.call_at(due, self._came, due)

    def _came(self, due: float) -> None:
        self._worst_ms = max(self._worst_ms, 1000 * (asyncio.get_running_loop().time() - due))
        self._set()
