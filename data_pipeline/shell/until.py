"""T, the instant up to which a batch owns the buckets of a view, as they cannot receive further records.

The owner of a bucket alone provides its contents. A T beyond what the online layer has seen would take over buckets
whose records are not archived yet, and the view would stay at what the batch found. Online reducers report the
watermark of the slowest source (``settled_ms``). By default T is that, but at most the current time. A later T is
rejected unless it is forced. Archives are rolled some seconds after counts are reported; the batch waits for that
before it lists files.
"""

from __future__ import annotations

import datetime as dt
import time
from dataclasses import replace
from pathlib import Path

from data_pipeline.shell.request import Request
from heron_runtime.failures import UsageError
from heronry.pipeline.views import settled_ms
from heronry.streamlet.endpoints import ViewSink
from heronry.streamlet.program import Program

ROLL_SECS = 6.0  # maximum delay of an archive's files after the counts, in seconds


def bounded(request: Request, program: Program) -> Request:
    """Return the request with its T.

    Raises:
        UsageError: T is unknown, or beyond what the online layer has seen.
    """
    views = {step.sink.name: step.sink.path for step in program.sinks() if isinstance(step.sink, ViewSink)}
    settled = {name: settled_ms(Path(path)) for name, path in views.items()}
    unknown = [name for name, seen in settled.items() if seen is None]
    least = min((seen for seen in settled.values() if seen is not None), default=None)
    if request.to_ms is None and unknown:
        raise UsageError(
            f"the progress of the sources of view {unknown[0]} is unknown: a task of its topology has not reported yet",
            "Try again when every source has sent records, or write --to TIME --force.",
        )
    now = int(time.time() * 1000)
    if request.to_ms is None:
        return replace(request, to_ms=now if least is None else min(now, least))
    if not request.force and (unknown or (least is not None and request.to_ms > least)):
        seen = "is unknown" if unknown else f"is {iso(least)}"
        raise UsageError(
            f"--to {iso(request.to_ms)} lies beyond what the online layer has seen: the least watermark of its sources "
            f"{seen}, so records that are still to come would be missing from the view",
            "Leave --to out, give an earlier one, or add --force if the topology is not coming back.",
        )
    return request


def wait_for_archives(began: float) -> None:
    """Wait until the records counted when the job began are in files."""
    time.sleep(max(0.0, began + ROLL_SECS - time.monotonic()))


def iso(ms: int | None) -> str:
    """Return an instant in ISO 8601 form for messages."""
    if ms is None:
        return "the end"
    return (dt.datetime(1970, 1, 1, tzinfo=dt.UTC) + dt.timedelta(milliseconds=ms)).isoformat().replace("+00:00", "Z")
