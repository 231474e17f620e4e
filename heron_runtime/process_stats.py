"""Statistics of this process: CPU, memory, descriptors, garbage collection, and lag of the event loop.

``ProcessStats`` may be used from any thread. Two callbacks time each garbage collection, in the thread in which the
interpreter collects. With the thresholds of the data plane's processes this happens at most a few times a second.
``LoopLag`` belongs to one asyncio loop. It sets a timer each second; the delay of the timer is the time for which
everything else has waited. A process that already has such a timer reports it to ``LoopLag`` instead, since each
additional wake-up adds to the cost of an idle process.
"""

from __future__ import annotations

import asyncio
import gc
import os
import time
from pathlib import Path
from typing import Any, NamedTuple

import psutil

STAT = Path("/proc/self/stat")
LAG_PROBE_SECONDS = 1.0


class GarbageClock:
    """Total time of garbage collections in this process since ``start``, in milliseconds."""

    def __init__(self) -> None:
        self.total_ms = 0.0
        self._began = 0.0
        self._started = False

    def start(self) -> None:
        """Start to measure. Idempotent."""
        if not self._started:
            self._started = True
            gc.callbacks.append(self._collected)

    def stop(self) -> None:
        """Stop measuring. Idempotent."""
        if self._started:
            self._started = False
            gc.callbacks.remove(self._collected)

    def _collected(self, phase: str, _: dict[str, Any]) -> None:
        now = time.perf_counter()
        if phase == "start":
            self._began = now
        elif self._began:
            self.total_ms += 1000 * (now - self._began)


GARBAGE = GarbageClock()  # a process has one collector


class Usage(NamedTuple):
    """Figures of the operating system about a process."""

    user_seconds: float
    system_seconds: float
    memory_bytes: float
    threads: float
    descriptors: float


def own_usage() -> Usage:
    """Read the figures of this process, on Linux from `/proc` at a quarter of the cost of psutil."""
    try:
        stat = os.open(STAT, os.O_RDONLY)
    except OSError:
        return _portable_usage()
    try:
        text = os.read(stat, 4096)
    finally:
        os.close(stat)
    fields = text[text.rindex(b")") + 2 :].split()  # the process name before it may contain any character
    ticks, page_bytes = os.sysconf("SC_CLK_TCK"), os.sysconf("SC_PAGE_SIZE")
    descriptors = len(os.listdir("/proc/self/fd")) - 1  # without the descriptor of this listing
    return Usage(
        int(fields[11]) / ticks, int(fields[12]) / ticks, int(fields[21]) * page_bytes, int(fields[17]), descriptors
    )


def _portable_usage() -> Usage:
    process = psutil.Process()
    with process.oneshot():
        cpu = process.cpu_times()
        memory = process.memory_info().rss
        return Usage(cpu.user, cpu.system, memory, process.num_threads(), process.num_fds())


class ProcessStats:
    """Counters and gauges of this process. `instance`: use Heron's metric names for Python instances."""

    def __init__(self, *, instance: bool) -> None:
        self._instance = instance
        GARBAGE.start()

    def read(self, uptime: float) -> tuple[dict[str, float], dict[str, float]]:
        """Return the current counters and gauges. ``uptime`` is in seconds."""
        usage = own_usage()
        if self._instance:
            counters = {"__py-user-cpu-time-secs": usage.user_seconds, "__py-sys-cpu-time-secs": usage.system_seconds}
            gauges = {
                "__py-physical-memory-byte": usage.memory_bytes,
                "__py-uptime-secs": uptime,
                "__py-fd-count": usage.descriptors,
                "__py-thread-count": usage.threads,
            }
        else:
            counters = {
                "__process/__cpu_user_usec": usage.user_seconds * 1e6,
                "__process/__cpu_system_usec": usage.system_seconds * 1e6,
            }
            gauges = {
                "__process/__mem_used_bytes": usage.memory_bytes,
                "__process/__uptime_sec": uptime,
                "__process/__fd_count": usage.descriptors,
                "__process/__thread_count": usage.threads,
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
    """Lag of the timers of the running event loop.

    Either `start` creates a timer, or a caller with a timer reports `expect` and `came`.
    """

    def __init__(self) -> None:
        self._worst_ms = 0.0
        self._due: float | None = None  # of the timer that runs, in seconds of the loop's clock
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Start the timer. Call this on the loop. Idempotent."""
        if self._timer is None:
            self._set()

    def stop(self) -> None:
        """Stop the timer. Idempotent."""
        self._due = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def expect(self, seconds: float) -> None:
        """Record that the caller has set a timer that is due in this many seconds."""
        self._due = asyncio.get_running_loop().time() + seconds

    def came(self) -> None:
        """Record that the timer has fired."""
        self._worst_ms, self._due = max(self._worst_ms, self._late_ms()), None

    def take_ms(self) -> float:
        """Return the worst lag since the last call, in milliseconds, including a timer that is late now."""
        worst, self._worst_ms = max(self._worst_ms, self._late_ms()), 0.0
        return worst

    def _late_ms(self) -> float:
        return 0.0 if self._due is None else 1000 * (asyncio.get_running_loop().time() - self._due)

    def _set(self) -> None:
        self.expect(LAG_PROBE_SECONDS)
        self._timer = asyncio.get_running_loop().call_later(LAG_PROBE_SECONDS, self._rang)

    def _rang(self) -> None:
        self.came()
        self._set()
