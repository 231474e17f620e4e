"""Routes about merged views of streamlet programs: batch results and the online results after them.

Views are folders readable by this machine, registered in the home (``heron pipeline run``). Reading requires
pyarrow; without it these routes answer 503 and all others work. Every answer is limited, and one that would read too
much of a view is refused. Views are read in the query thread (``Tracker.run_query``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, TypeVar

from fastapi import APIRouter, Depends, Query, Request
from fastapi import Path as PathParameter
from starlette.responses import Response

from heron_control.inspection.streaming_runs import living
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
MAX_ROWS = 300_000  # per answer: about five CPU seconds
Result = TypeVar("Result")

Key = Annotated[
    str | None,
    Query(description='only this key: JSON (12, "12", ["a", 1]), or a text that is not JSON', max_length=MAX_KEY),
]
From = Annotated[int | None, Query(alias="from", description="ms since 1970, UTC", ge=-MAX_MS, le=MAX_MS)]
To = Annotated[int | None, Query(alias="to", description="ms since 1970, UTC, exclusive", ge=-MAX_MS, le=MAX_MS)]
Limit = Annotated[int, Query(description="maximum number of buckets and totals", ge=1, le=100_000)]
PageLimit = Annotated[int, Query(description="maximum number of results", ge=1, le=MAX_PAGE)]
TopN = Annotated[int, Query(description="number of keys", ge=1, le=MAX_TOP)]
PageCursor = Annotated[
    str | None, Query(description="`next` of the previous page", min_length=1, max_length=MAX_CURSOR)
]
First = Annotated[str | None, Query(description="text: only texts as keys, from this one on", max_length=MAX_KEY)]
Last = Annotated[
    str | None, Query(description="text: only texts as keys, up to and including this one", max_length=MAX_KEY)
]
Name = Annotated[str, PathParameter(description="name of the view, see /views", max_length=MAX_NAME)]
OneKey = Annotated[str, Query(description="JSON, or a text that is not JSON", max_length=MAX_KEY)]


async def _refuse_unknown(request: Request) -> None:
    """Refuse unknown parameters, which are usually misspelt. Raises UsageError."""
    described = request.app.openapi()["paths"][request.scope["route"].path]["get"]
    known = {each["name"] for each in described["parameters"] if each["in"] == "query"}
    for name in request.query_params:
        if name not in known:
            raise UsageError(f"{name[:MAX_NAME]}: is not a parameter of this path{did_you_mean(name, known)}")


Known = Annotated[None, Depends(_refuse_unknown)]


@get(router, "/views")
async def views(request: Request) -> Response:
    """List merged views with T, the end of the batch results."""

    def read() -> dict[str, Any]:
        ends = {}
        for view in all_registered():
            try:
                ends[view.name] = {"to": open_view(Path(view.path)).to_ms}
            except NoSuchView:
                continue
        return ends

    return success_response(request, await _run_query(request, read))


@get(router, "/views/{name}")
async def view(
    request: Request, name: Name, key: Key = None, from_: From = None, to: To = None, limit: Limit = 10_000
) -> Response:
    """Read a view: each key and bucket in [from, to) with its value and owner, and the total of each key.

    `to` in the answer is T: buckets that end at or before it belong to the batch, later ones to the online layer;
    `promise` explains the guarantee.
    """
    return success_response(request, await _run_query(request, lambda: _read(name, key, from_, to, limit)))


@get(router, "/views/{name}/keys")
async def view_keys(
    request: Request, known: Known, name: Name, limit: PageLimit = 100, cursor: PageCursor = None, first: First = None,
    last: Last = None, from_: From = None, to: To = None,
) -> Response:  # fmt: skip
    """List keys in order, each with its total over the buckets in [from, to), in pages.

    `next` is the `cursor` of the next page, null on the last. No key appears twice, and no key that stays is
    skipped, whatever changes meanwhile. `at_most`: upper bound of the keys of this and all later pages. Texts are
    sorted by code points; other keys have a stable order.
    """

    def read() -> dict[str, Any]:
        opened = _open(name)
        answer = page(opened, limit, Range(first, last, from_, to), cursor)
        return {**_head(opened, name), **_totals(answer.totals), "next": answer.next, "at_most": answer.at_most}

    return success_response(request, await _run_query(request, read))


@get(router, "/views/{name}/top")
async def view_top(
    request: Request, known: Known, name: Name, n: TopN = 10, smallest: bool = False, first: First = None,
    last: Last = None, from_: From = None, to: To = None,
) -> Response:  # fmt: skip
    """List the n keys with the largest or smallest totals over the buckets in [from, to).

    Of equal totals the lesser key comes first; keys without a value are omitted. 422 for values without an order, or
    if more than 300 000 rows would be read; `heron pipeline top` has no such limit.
    """

    def read() -> dict[str, Any]:
        opened = _open(name)
        asked = Range(first, last, from_, to)
        return {**_head(opened, name), **_totals(top(opened, n, asked, smallest=smallest, most_rows=MAX_ROWS))}

    return success_response(request, await _run_query(request, read))


@get(router, "/views/{name}/series")
async def view_series(
    request: Request, known: Known, name: Name, key: OneKey, from_: From = None, to: To = None, limit: PageLimit = 1_000
) -> Response:
    """List the buckets of one key in [from, to) by time, each with its value and owner.

    `next` is the `from` of the next page, null at the end. A key that is valid JSON (`12`) is read as JSON; write
    `"12"` for the text.
    """

    def read() -> dict[str, Any]:
        opened = _open(name)
        value = _keys(key)[0]
        answer = series(opened, value, limit, from_, to)
        return {
            **_head(opened, name), "key": json_value(value), "buckets": [_bucket(each) for each in answer.buckets],
            "next": answer.next_ms,
        }  # fmt: skip

    return success_response(request, await _run_query(request, read))


@get(router, "/pipeline/runs")
async def runs(request: Request) -> Response:
    """List streaming runs on Spark in the tracker's home on this machine.

    The last micro-batch with rows, seconds and rate, the size of the state (`portions`, `state_rows`,
    `state_bytes`), and the address of Spark's page.
    """
    folder = tracker_of(request).runs
    live_runs = await _run_query(request, lambda: living(folder))
    return success_response(request, [{**asdict(run), "input_rate": run.input_rate} for run in live_runs])


def _open(name: str) -> View:
    return open_view(Path(registered(name).path))


def _read(name: str, key: str | None, from_ms: int | None, to_ms: int | None, limit: int) -> dict[str, Any]:
    opened = _open(name)
    span = Range(from_ms=from_ms, to_ms=to_ms).span()
    answers: list[Answer] = []
    totals: list[Total] = []
    for part in [span] if key is None else [span_of(one, from_ms, to_ms) for one in _keys(key)]:
        for each in opened.read(part).keys:
            answers += opened.answers(each)[: limit + 1]
            totals.append(Total(decode_key(each.key), opened.total(each)))
            if len(totals) > limit:  # at least as many buckets were added
                break
    return {
        **_head(opened, name), "truncated": max(len(answers), len(totals)) > limit,
        "buckets": [_bucket(answer) for answer in answers[:limit]], **_totals(totals[:limit]),
    }  # fmt: skip


def _head(opened: View, name: str) -> dict[str, Any]:
    return {
        "view": name, "reducer": opened.description.monoid, "bucket_ms": opened.description.bucket_ms,
        "to": opened.to_ms, "promise": opened.promise,
    }  # fmt: skip


def _totals(totals: Iterable[Total]) -> dict[str, Any]:
    return {"totals": [{"key": json_value(total.key), "value": json_value(total.value)} for total in totals]}


def _bucket(answer: Answer) -> dict[str, Any]:
    return {
        "key": json_value(answer.key), "start": answer.start, "end": answer.end, "value": json_value(answer.value),
        "owner": answer.owner,
    }  # fmt: skip


def _keys(text: str) -> list[Any]:
    """Return the key as JSON, and as a text where that differs."""
    value = key_from(text)
    if isinstance(value, dict):
        raise UsageError("key: must be a scalar, not a JSON object")
    return [value] if isinstance(value, str | tuple) else [value, text]


async def _run_query(request: Request, question: Callable[[], Result]) -> Result:
    """Run a query and translate its exceptions."""
    try:
        return await tracker_of(request).run_query(question)
    except NoSuchView as error:
        raise NotFound(str(error)) from None
    except ImportError:
        raise Unavailable("views require pyarrow: pip install 'heronry[archive]'") from None
    except (TypeError, RecursionError) as error:
        raise UsageError(f"key: {error}") from None
    except (ViewError, OSError) as error:
        raise Unavailable(str(error)) from None
