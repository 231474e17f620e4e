"""Sink ``jsonlines``: each report is one line of JSON in ``metrics-N.jsonl``.

A line is the report with Heron's metric names; latencies are ``{count, mean, p50, p90, p99}`` in milliseconds since the
incarnation began. The file is rotated once (``metrics-N.jsonl.1``) when it reaches
``heron.metrics.jsonlines.max.bytes``, so a container uses at most twice that much. Lines are whole: a flush is written
whole or, on a full disk, not at all and again with the next one.
"""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path
from typing import Any

from heron_runtime.files import append_whole
from heron_runtime.model.settings import Keys, setting
from heron_runtime.wire.metrics import ExceptionReport, ProcessMetrics
from heron_runtime.wire.sketch_codec import decode_sketch
from metrics_manager.sinks import SinkContext

QUANTILES = {"p50": 0.5, "p90": 0.9, "p99": 0.99}


def as_line(report: ProcessMetrics, topology: str) -> str:
    """Return a report as one line of JSON.

    Raises:
        MalformedMessage: A sketch is damaged.
    """
    return json.dumps(
        {
            "time": report.time,
            "topology": topology,
            "component": report.component,
            "instance": report.instance,
            "container": report.container,
            "task": report.task,
            "incarnation": report.incarnation,
            "started": report.started,
            "counters": dict(report.counters),
            "gauges": dict(report.gauges),
            "latencies": {name: _summary(data) for name, data in report.sketches.items()},
            "exceptions": [_exception(e) for e in report.exceptions],
        },
        separators=(",", ":"),
    )


def _exception(e: ExceptionReport) -> dict[str, Any]:
    return {
        "class": e.class_name,
        "message": e.message,
        "count": e.count,
        "first": e.first_time,
        "last": e.last_time,
    }


def _summary(data: bytes) -> dict[str, Any]:
    sketch = decode_sketch(data)
    quantiles = zip(QUANTILES, sketch.quantiles(QUANTILES.values()), strict=True)
    return {"count": sketch.count, "mean": sketch.mean, **dict(quantiles)}


class JsonLinesSink:
    """Writes reports to a file on a thread. The event loop encodes the lines."""

    async def open(self, context: SinkContext) -> None:
        """Create the folder.

        Raises:
            OSError: The folder cannot be created.
        """
        self._context = context
        self._path = context.launch.metrics_dir / f"metrics-{context.container}.jsonl"
        self._max_bytes = setting(context.launch.settings, Keys.HERON_METRICS_JSONLINES_MAX_BYTES)
        self._version = context.restored  # what an earlier run saved stands in the file already
        self._writing: tuple[int, asyncio.Task[None]] | None = None  # up to a version
        await asyncio.to_thread(self._path.parent.mkdir, parents=True, exist_ok=True)

    async def flush(self) -> None:
        """Append the new reports.

        Raises:
            OSError: The file cannot be written.
        """
        if self._writing is None:
            version = self._context.metrics.version
            reports = self._context.metrics.newest(self._version)
            if not reports:
                return
            text = "".join(as_line(r, self._context.launch.topology) + "\n" for r in reports)
            write = asyncio.to_thread(append, self._path, text.encode(), self._max_bytes)
            self._writing = version, asyncio.create_task(write)
        version, writing = self._writing
        # A flush that is given up leaves its thread at work. The next one waits for it, and writes nothing twice.
        await asyncio.wait([writing])
        self._writing = None
        writing.result()
        self._version = version

    async def close(self) -> None:
        """Do nothing: no file stays open."""


def append(path: Path, data: bytes, max_bytes: int) -> None:
    """Append all lines or none. Rotate the file first if it would exceed ``max_bytes``.

    Raises:
        OSError: The file cannot be written.
    """
    try:
        size = path.stat().st_size
    except FileNotFoundError:
        size = 0
    if size and size + len(data) > max_bytes:
        os.replace(path, path.with_name(path.name + ".1"))
    with open(path, "ab", buffering=0) as file:
        append_whole(file.fileno(), data)
