"""Merged views of streamlet programs: what the batch says about the past, and the online reducers about the rest.

Views are folders that this machine reads; which there are is registered in the home (``heron pipeline run``). Reading
needs pyarrow; without it these paths answer 503 and everything else goes on. Every answer is bounded, and one that
would have to read too much of a view is refused; views are read beside the loop (``Tracker.beside``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, TypeVar

from fastapi import APIRouter, Depends, Query, Request
from fastapi import Path as PathParameter
from starlette.responses import Response

from heron_control.inspection.stream_runs import living
from heron_runtime.failures import NotFound, Unavailable, UsageError, did_you_mean
from heron_tracker.core.json_values import json_value
from heron_tracker.responses import success_response
from heron_tracker.routing import MAX_NAME, get, tracker_of
from heronry.pipeline.questions import Range, Total, page, series, top
from heronry.pipeline.registry import all_registered, registered
from heronry.pipeline.rows import decode_key, key_from
from heronry.pipeline.views import Answer, NoSuchView, View, ViewError, open_view, span_of

router = APIRouter(tags=["views"])
MAX_MS = 253_402_300_800_000  # the year 10000
MAX_KEY = 1_024
MAX_CURSOR = 16_384
MAX_PAGE = 10_000
MAX_TOP = 1_000
MAX_ROWS = 300_000  # read for one answer: some five seconds of a processor
Result = TypeVar("Result")

Key = Annotated[
    str | None,
    Query(description='only this key: JSON (12, "12", ["a", 1]), or a text that is none', max_length=MAX_KEY),
]
From = Annotated[int | None, Query(alias="from", description="ms since 1970, UTC", ge=-MAX_MS, le=MAX_MS)]
To = Annotated[int | None, Query(alias="to", description="ms since 1970, UTC; below this", ge=-MAX_MS, le=MAX_MS)]
Limit = Annotated[int, Query(description="at most so many buckets and totals", ge=1, le=100_000)]
PageLimit = Annotated[int, Query(description="at most so many", ge=1, le=MAX_PAGE)]
TopN = Annotated[int, Query(description="how many", ge=1, le=MAX_TOP)]
PageCursor = Annotated[str | None, Query(description="`next` of the page before", min_length=1, max_length=MAX_CURSOR)]
First = Annotated[
    str | None, Query(description="a text: only keys that are texts, from this one on", max_length=MAX_KEY)
]
Last = Annotated[
    str | None, Query(description="a text: only keys that are texts, up to this one inclusive", max_length=MAX_KEY)
]
Name = Annotated[str, PathParameter(description="name of the view, as /views has it", max_length=MAX_NAME)]
OneKey = Annotated[str, Query(description="JSON, or a text that is none", max_length=MAX_KEY)]


async def _known_alone(request: Request) -> None:
    """A misspelt parameter would be an answer to another question. Raises UsageError."""
    described = request.app.openapi()["paths"][request.scope["route"].path]["get"]
    known = {each["name"] for each in described["parameters"] if each["in"] == "query"}
    for name in request.query_params:
        if name not in known:
            raise UsageError(f"{name[:MAX_NAME]}: is no parameter of this path{did_you_mean(name, known)}")


Known = Annotated[None, Depends(_known_alone)]


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

    return success_response(request, await _beside(request, look))


@get(router, "/views/{name}")
async def view(
    request: Request, name: Name, key: Key = None, from_: From = None, to: To = None, limit: Limit = 10_000
) -> Response:
    """The merged answer: each key and bucket in [from, to) with its value and owner, and each key over all of them.

    `to` in the answer is T: buckets that end at or before it are the batch's, later ones the online layer's; `promise`
    says what that means.
    """
    return success_response(request, await _beside(request, lambda: _read(name, key, from_, to, limit)))


@get(router, "/views/{name}/keys")
async def view_keys(
    request: Request, known: Known, name: Name, limit: PageLimit = 100, cursor: PageCursor = None, first: First = None,
    last: Last = None, from_: From = None, to: To = None,
) -> Response:  # fmt: skip
    """Keys in order, each with its total over the buckets in [from, to): a page of them.

    `next` is the `cursor` of the page after, null on the last; no key comes twice and none that stays is passed over,
    whatever changes in between. `at_most`: this page and those after it have no more keys. Texts stand in the order of
    their code points; other keys in an order that is always the same.
    """

    def look() -> dict[str, Any]:
        found = _open(name)
        answer = page(found, limit, Range(first, last, from_, to), cursor)
        return {**_head(found, name), **_totals(answer.totals), "next": answer.next, "at_most": answer.at_most}

    return success_response(request, await _beside(request, look))


@get(router, "/views/{name}/top")
async def view_top(
    request: Request, known: Known, name: Name, n: TopN = 10, smallest: bool = False, first: First = None,
    last: Last = None, from_: From = None, to: To = None,
) -> Response:  # fmt: skip
    """The n keys with the largest totals over the buckets in [from, to), or with the smallest.

    Of equal totals the lesser key comes first; keys without a value are left out. 422 where values have no order, or
    where more than 300 000 rows would have to be read; `heron pipeline top` has no such bound.
    """

    def look() -> dict[str, Any]:
        found = _open(name)
        asked = Range(first, last, from_, to)
        return {**_head(found, name), **_totals(top(found, n, asked, smallest=smallest, most_rows=MAX_ROWS))}

    return success_response(request, await _beside(request, look))


@get(router, "/views/{name}/series")
async def view_series(
    request: Request, known: Known, name: Name, key: OneKey, from_: From = None, to: To = None, limit: PageLimit = 1_000
) -> Response:
    """The buckets of one key in [from, to), by time, each with its value and owner.

    `next` is the `from` that goes on where this ends, null at the end. A key that is JSON and a text (`12`) is that of
    the JSON; the text is `"12"`.
    """

    def look() -> dict[str, Any]:
        found = _open(name)
        value = _keys(key)[0]
        answer = series(found, value, limit, from_, to)
        return {
            **_head(found, name), "key": json_value(value), "buckets": [_bucket(each) for each in answer.buckets],
            "next": answer.next_ms,
        }  # fmt: skip

    return success_response(request, await _beside(request, look))


@get(router, "/pipeline/runs")
async def runs(request: Request) -> Response:
    """The streaming runs on Spark that live on this machine, in the tracker's home: the last micro-batch with its rows,
    seconds and rate, what is kept (`portions`, `state_rows`, `state_bytes`), and the address of Spark's own page."""
    folder = tracker_of(request).runs
    found = await _beside(request, lambda: living(folder))
    return success_response(request, [{**asdict(run), "input_rate": run.input_rate} for run in found])


def _open(name: str) -> View:
    return open_view(Path(registered(name).path))


def _read(name: str, key: str | None, from_ms: int | None, to_ms: int | None, limit: int) -> dict[str, Any]:
    found = _open(name)
    span = Range(from_ms=from_ms, to_ms=to_ms).span()
    answers: list[Answer] = []
    totals: list[Total] = []
    for part in [span] if key is None else [span_of(one, from_ms, to_ms) for one in _keys(key)]:
        for each in found.read(part).keys:
            answers += found.answers(each)[: limit + 1]
            totals.append(Total(decode_key(each.key), found.total(each)))
            if len(totals) > limit:  # and so many buckets, at least
                break
    return {
        **_head(found, name), "truncated": max(len(answers), len(totals)) > limit,
        "buckets": [_bucket(answer) for answer in answers[:limit]], **_totals(totals[:limit]),
    }  # fmt: skip


def _head(found: View, name: str) -> dict[str, Any]:
    return {
        "view": name, "reducer": found.description.monoid, "bucket_ms": found.description.bucket_ms,
        "to": found.to_ms, "promise": found.promise,
    }  # fmt: skip


def _totals(totals: Iterable[Total]) -> dict[str, Any]:
    return {"totals": [{"key": json_value(total.key), "value": json_value(total.value)} for total in totals]}


def _bucket(answer: Answer) -> dict[str, Any]:
    return {
        "key": json_value(answer.key), "start": answer.start, "end": answer.end, "value": json_value(answer.value),
        "owner": answer.owner,
    }  # fmt: skip


def _keys(text: str) -> list[Any]:
    """The key as JSON, and as the text itself where that is something else."""
    value = key_from(text)
    if isinstance(value, dict):
        raise UsageError("key: an object is no key")
    return [value] if isinstance(value, str | tuple) else [value, text]


async def _beside(request: Request, question: Callable[[], Result]) -> Result:
    """Files are read beside the loop, in turn with other long questions; what can go wrong becomes an answer."""
    try:
        return await tracker_of(request).run_query(question)
    except NoSuchView as error:
        raise NotFound(str(error)) from None
    except ImportError:
        raise Unavailable("views need pyarrow here: pip install 'heronry[archive]'") from None
    except (TypeError, RecursionError) as error:
        raise UsageError(f"key: {error}") from None
    except (ViewError, OSError) as error:
        raise Unavailable(str(error)) from None
