"""Merged views of streamlet programs: what the batch says about the past, and the online reducers about the rest.

Views are folders that this machine reads; which there are is registered in the home (``heron pipeline run``). Reading
needs pyarrow; without it these paths answer 503 and everything else goes on.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, TypeVar

from fastapi import APIRouter, Query, Request
from starlette.responses import Response

from heron_control.inspection.stream_runs import living
from heron_runtime.failures import NotFound, Unavailable, UsageError
from heron_tracker.core.plain import plain
from heron_tracker.shell.parameters import MAX_NAME
from heron_tracker.shell.replies import reply
from heron_tracker.shell.routing import get, tracker_of
from heronry.pipeline.registry import all_registered, registered
from heronry.pipeline.views import Answer, NoSuchView, ViewError, open_view

router = APIRouter(tags=["views"])
MAX_MS = 253_402_300_800_000  # the year 10000
MAX_KEY = 1_024
Result = TypeVar("Result")

Key = Annotated[
    str | None,
    Query(description='only this key: JSON (12, "12", ["a", 1]), or a text that is none', max_length=MAX_KEY),
]
From = Annotated[int | None, Query(alias="from", description="ms since 1970, UTC", ge=-MAX_MS, le=MAX_MS)]
To = Annotated[int | None, Query(alias="to", description="ms since 1970, UTC; below this", ge=-MAX_MS, le=MAX_MS)]
Limit = Annotated[int, Query(description="at most so many buckets and totals", ge=1, le=100_000)]


@get(router, "/views")
async def views(request: Request) -> Response:
    """Names of the merged views, and T, up to which the batch is the authority."""

    def look() -> dict[str, Any]:
        found = {}
        for view in all_registered():
            try:
                found[view.name] = {"to": open_view(Path(view.path)).to_ms}
            except NoSuchView:
                continue
        return found

    return reply(request, await _in_thread(look))


@get(router, "/views/{name}")
async def view(
    request: Request, name: str, key: Key = None, from_: From = None, to: To = None, limit: Limit = 10_000
) -> Response:
    """The merged answer: each key and bucket in [from, to) with its value and owner, and each key over all of them.

    `to` in the answer is T: buckets that end at or before it are the batch's, later ones the online layer's; `promise`
    says what that means.
    """
    if len(name) > MAX_NAME:
        raise UsageError("name: is too long")
    if from_ is not None and to is not None and to < from_:
        raise UsageError("to: is before from")
    return reply(request, await _in_thread(lambda: _read(name, key, from_, to, limit)))


@get(router, "/pipeline/runs")
async def runs(request: Request) -> Response:
    """The streaming runs on Spark that live on this machine, in the tracker's home: the last micro-batch with its rows,
    seconds and rate, what is kept (`portions`, `state_bytes`), and the address of Spark's own page."""
    folder = tracker_of(request).runs
    found = await _in_thread(lambda: living(folder))
    return reply(request, [{**asdict(run), "input_rate": run.input_rate} for run in found])


def _read(name: str, key: str | None, from_ms: int | None, to_ms: int | None, limit: int) -> dict[str, Any]:
    found = open_view(Path(registered(name).path))
    keys = [...] if key is None else _keys(key)
    buckets: list[Answer] = []
    totals: list[tuple[Any, Any]] = []
    for one in keys:
        buckets += found.buckets(one, from_ms, to_ms)
        totals += found.totals(one, from_ms, to_ms).items()
    return {
        "view": name, "reducer": found.description.monoid, "bucket_ms": found.description.bucket_ms,
        "to": found.to_ms, "promise": found.promise, "truncated": max(len(buckets), len(totals)) > limit,
        "buckets": [_bucket(answer) for answer in buckets[:limit]],
        "totals": [{"key": plain(each), "value": plain(value)} for each, value in totals[:limit]],
    }  # fmt: skip


def _bucket(answer: Answer) -> dict[str, Any]:
    return {
        "key": plain(answer.key), "start": answer.start, "end": answer.end, "value": plain(answer.value),
        "owner": answer.owner,
    }  # fmt: skip


def _keys(text: str) -> list[Any]:
    """The key as JSON, and as the text itself where that is something else."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return [text]
    if isinstance(value, dict):
        raise UsageError("key: an object is no key")
    if isinstance(value, list):
        return [_frozen(value)]
    return [value] if isinstance(value, str) else [value, text]


def _frozen(value: Any) -> Any:
    return tuple(map(_frozen, value)) if isinstance(value, list) else value


async def _in_thread(question: Callable[[], Result]) -> Result:
    """Files are read elsewhere than in the loop; what can go wrong becomes an answer."""
    try:
        return await asyncio.to_thread(question)
    except NoSuchView as error:
        raise NotFound(str(error)) from None
    except ImportError:
        raise Unavailable("views need pyarrow here: pip install 'heronry[archive]'") from None
    except (TypeError, RecursionError) as error:
        raise UsageError(f"key: {error}") from None
    except (ViewError, OSError) as error:
        raise Unavailable(str(error)) from None
