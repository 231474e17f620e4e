"""``heron pipeline views``, ``status``, ``keys``, ``top`` and ``series``: merged views, read from their files."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from heron_cli.console import Format, print_json, print_line, print_message, print_table
from heron_cli.options import OutputOption, VerboseOption, format_instant, parse_instant
from heron_runtime.failures import Unavailable, UsageError
from heron_tracker.core.json_values import json_value
from heronry.pipeline import read_view
from heronry.pipeline.questions import Range, Total, page, series, top
from heronry.pipeline.registry import Registered, all_registered, registered
from heronry.pipeline.rows import key_from
from heronry.pipeline.views import (
    FOREVER,
    View,
    ViewError,
    batches,
    online_files,
    open_view,
    read_description,
    settled_ms,
)

VIEW_HELP = "Name of a view in `heron pipeline views`."
FOLDER_HELP = f"{VIEW_HELP[:-1]}, or its folder (with a /), which works without a batch."
MAX_PAGE, MAX_TOP = 100_000, 10_000  # rows in memory for one answer

ViewName = Annotated[str, typer.Argument(metavar="VIEW", help=VIEW_HELP)]
NameOrFolder = Annotated[str, typer.Argument(metavar="VIEW", help=FOLDER_HELP)]
Limit = Annotated[int, typer.Option("--limit", min=1, max=MAX_PAGE, help="Largest number of rows.")]
First = Annotated[str | None, typer.Option("--first", metavar="TEXT", help="Least key (texts only).")]
Last = Annotated[str | None, typer.Option("--last", metavar="TEXT", help="Greatest key, inclusive (texts only).")]
From = Annotated[str, typer.Option("--from", metavar="TIME", help="Only buckets that begin at or after this time.")]
To = Annotated[str, typer.Option("--to", metavar="TIME", help="Only buckets that end at or before this time.")]


def status(
    view: Annotated[str, typer.Argument(metavar="VIEW", help=VIEW_HELP)],
    output: OutputOption = Format.TABLE,
    verbose: VerboseOption = False,
) -> None:
    """Print the state of the batch and online layers of a view.

    Example: heron pipeline status words
    """
    state = describe_view(registered(view))
    if output is Format.JSON:
        print_json(state)
        return
    rows = [("view", state["view"]), ("folder", state["path"]), ("program", state["program"] or "")]
    rows += [("reducer", f"{state['monoid'] or 'of the program'}, buckets of {state['bucket_ms']} ms")]
    rows += [("batch", _describe_batch(batch)) for batch in state["batches"]]
    rows += [("batch", "none")] if not state["batches"] else []
    online = state["online"]
    owned = f" ({online['owned_by_batch']} more belong to the batch)" if online["owned_by_batch"] else ""
    rows += [("online", f"{online['buckets']} buckets from T on{owned}, written {online['written_at'] or 'never'}")]
    rows += [("sources", f"have passed {online['seen_to'] or 'an unknown time'}")]
    for name, text in rows:
        print_line(f"{name:<9}{text}")
    print_message(state["promise"])


def _describe_batch(batch: dict[str, Any]) -> str:
    part = batch["backfill"]
    rest = f"; backfill from {part['from']} to {part['to']}, the rest from version {part['version']}" if part else ""
    return f"version {batch['version']} up to {batch['to']}, written {batch['written_at']}{rest}"


def list_views(output: OutputOption = Format.TABLE, verbose: VerboseOption = False) -> None:
    """List the views that have a batch.

    Example: heron pipeline views
    """
    rows = []
    for view in all_registered():
        try:
            newest = open_view(Path(view.path)).to_ms
        except ViewError:
            newest = None
        to = None if newest is None else format_instant(newest)
        program = view.program or None
        rows.append({"view": view.name, "to": to, "path": view.path, "file": view.file, "program": program})
    if output is Format.JSON:
        print_json(rows)
        return
    if not rows:
        print_message("no views; `heron pipeline run FILE PROGRAM` runs the batch of a program's views")
        return
    columns = ("view", "to", "path", "file", "program")
    print_table(columns, [[row[c] for c in columns] for row in rows])


def describe_view(view: Registered) -> dict[str, Any]:
    """Return the state of the layers of a view. Raises ViewError."""
    folder = Path(view.path)
    opened, description = open_view(folder), read_description(folder)
    online = list(online_files(folder, opened.to_ms))
    owned = {row.start for file in online_files(folder) for row in file.rows} - {
        row.start for file in online for row in file.rows
    }
    seen = settled_ms(folder)
    written = max((file.written_ms for file in online), default=None)
    return {
        "view": view.name, "path": view.path, "file": view.file, "program": description.program or None,
        "monoid": description.monoid, "bucket_ms": description.bucket_ms,
        "batches": [
            {
                "version": b.version, "to": format_instant(b.to_ms), "written_at": b.manifest.get("written_at"),
                "backfill": _describe_backfill(b.manifest),
            }
            for b in reversed(batches(folder))
        ],
        "online": {
            "buckets": len({row.start for file in online for row in file.rows}),
            "owned_by_batch": len(owned),
            "seen_to": None if seen is None else "their end" if seen >= FOREVER else format_instant(seen),
            "written_at": None if written is None else format_instant(written),
        },
        "promise": opened.promise,
    }  # fmt: skip


def _describe_backfill(manifest: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the part of a batch that was backfilled, and the version of the rest."""
    part = manifest.get("backfill")
    if part is None:
        return None
    return {"version": part["version"], "from": format_instant(part["from_ms"]), "to": format_instant(part["to_ms"])}


def keys(
    view: NameOrFolder,
    limit: Limit = 100,
    cursor: Annotated[str | None, typer.Option("--cursor", help="Cursor of the previous page.")] = None,
    first: First = None,
    last: Last = None,
    from_: From = "",
    to: To = "",
    output: OutputOption = Format.TABLE,
    verbose: VerboseOption = False,
) -> None:
    """Print a page of the keys of a view with their totals, batch and online layer merged.

    Example: heron pipeline keys words --limit 10
    """
    result = page(_open(view), limit, _range(first, last, from_, to), cursor)
    if output is Format.JSON:
        print_json({"totals": _total_documents(result.totals), "next": result.next, "at_most": result.at_most})
        return
    _print_totals(result.totals)
    if result.next is not None:
        print_message(f"more: --cursor {result.next}")


def show_top(
    view: NameOrFolder,
    n: Annotated[int, typer.Option("-n", min=1, max=MAX_TOP, help="Number of keys.")] = 10,
    smallest: Annotated[bool, typer.Option("--smallest", help="Smallest totals instead of largest.")] = False,
    first: First = None,
    last: Last = None,
    from_: From = "",
    to: To = "",
    output: OutputOption = Format.TABLE,
    verbose: VerboseOption = False,
) -> None:
    """Print the keys of a view with the largest or smallest totals. Reads every key of the range.

    Example: heron pipeline top words -n 5
    """
    totals = top(_open(view), n, _range(first, last, from_, to), smallest=smallest)
    if output is Format.JSON:
        print_json({"totals": _total_documents(totals)})
        return
    _print_totals(totals)


def show_series(
    view: NameOrFolder,
    key: Annotated[str, typer.Argument(metavar="KEY", help='Key as JSON (12, "12", ["a", 1]) or as text.')],
    limit: Limit = 1_000,
    from_: From = "",
    to: To = "",
    output: OutputOption = Format.TABLE,
    verbose: VerboseOption = False,
) -> None:
    """Print the buckets of one key by time, with their values and layers.

    Example: heron pipeline series words heron --from 2026-11-25
    """
    bounds = _range(None, None, from_, to)
    result = series(_open(view), _parse_key(key), limit, bounds.from_ms, bounds.to_ms)
    rows = [
        {
            "start": format_instant(each.start),
            "end": format_instant(each.end),
            "value": json_value(each.value),
            "owner": each.owner,
        }
        for each in result.buckets
    ]
    following = None if result.next_ms is None else format_instant(result.next_ms)
    if output is Format.JSON:
        print_json({"key": json_value(_parse_key(key)), "buckets": rows, "next": following})
        return
    columns = ("start", "end", "value", "owner")
    print_table(columns, [[row[name] for name in columns] for row in rows], ("value",))
    if following is not None:
        print_message(f"more: --from {following}")


def _open(name: str) -> View:
    try:
        import pyarrow  # noqa: F401  # checked here, since a missing package is reported before the first query
    except ImportError:
        raise Unavailable("views need pyarrow, which is not installed", "Run: pip install 'heronry[archive]'") from None
    return read_view(name)


def _range(first: str | None, last: str | None, from_: str, to: str) -> Range:
    return Range(first, last, parse_instant("--from", from_), parse_instant("--to", to))


def _parse_key(text: str) -> Any:
    """Parse a key as JSON, or as text if it is not JSON. Raises UsageError."""
    value = key_from(text)
    if isinstance(value, dict):
        raise UsageError(f"KEY {text!r} must be a scalar or a list", f"Write a text as {json.dumps(text)}.")
    return value


def _total_documents(totals: Iterable[Total]) -> list[dict[str, Any]]:
    return [{"key": json_value(total.key), "value": json_value(total.value)} for total in totals]


def _print_totals(totals: Iterable[Total]) -> None:
    rows = [[_format_key(total.key), json_value(total.value)] for total in totals]
    print_table(("key", "value"), rows, ("value",))


def _format_key(key: Any) -> str:
    """Format a key as an argument of ``heron pipeline series``: as JSON, or as text that is not JSON."""
    is_bare = isinstance(key, str) and not _is_json(key)
    return key if is_bare else json.dumps(json_value(key), ensure_ascii=False)


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True
