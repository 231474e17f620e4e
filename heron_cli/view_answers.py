"""``heron pipeline keys``, ``top`` and ``series``: what a merged view says, read from its files on this machine."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Iterable
from typing import Annotated, Any

import typer

from heron_cli.console import Format, print_json, print_table, say
from heron_cli.options import Output, Verbose
from heron_cli.spark_submit import milliseconds
from heron_runtime.failures import Unavailable, UsageError
from heron_tracker.core.json_values import json_value
from heronry.pipeline import read_view
from heronry.pipeline.questions import Range, Total, page, series, top
from heronry.pipeline.rows import key_from
from heronry.pipeline.views import View

VIEW_HELP = "Name of a view in `heron pipeline views`."
FOLDER_HELP = f"{VIEW_HELP[:-1]}, or its folder (with a /), which needs no batch."
MAX_PAGE, MAX_TOP = 100_000, 10_000  # what is kept in memory for one answer

ViewName = Annotated[str, typer.Argument(metavar="VIEW", help=VIEW_HELP)]
NameOrFolder = Annotated[str, typer.Argument(metavar="VIEW", help=FOLDER_HELP)]
Limit = Annotated[int, typer.Option("--limit", min=1, max=MAX_PAGE, help="Largest number of rows.")]
First = Annotated[str | None, typer.Option("--first", metavar="TEXT", help="Least key (texts only).")]
Last = Annotated[str | None, typer.Option("--last", metavar="TEXT", help="Greatest key, inclusive (texts only).")]
From = Annotated[str, typer.Option("--from", metavar="TIME", help="Only buckets that begin at or after this time.")]
To = Annotated[str, typer.Option("--to", metavar="TIME", help="Only buckets that end at or before this time.")]


def keys(
    view: NameOrFolder,
    limit: Limit = 100,
    cursor: Annotated[str | None, typer.Option("--cursor", help="Cursor of the previous page.")] = None,
    first: First = None,
    last: Last = None,
    from_: From = "",
    to: To = "",
    output: Output = Format.TABLE,
    verbose: Verbose = False,
) -> None:
    """Print a page of the keys of a view with their totals, batch and online layer merged."""
    found = page(_open(view), limit, _range(first, last, from_, to), cursor)
    if output is Format.JSON:
        print_json({"totals": _plain(found.totals), "next": found.next, "at_most": found.at_most})
        return
    _print(found.totals)
    if found.next is not None:
        say(f"more: --cursor {found.next}")


def largest(
    view: NameOrFolder,
    n: Annotated[int, typer.Option("-n", min=1, max=MAX_TOP, help="Number of keys.")] = 10,
    smallest: Annotated[bool, typer.Option("--smallest", help="Smallest totals instead of largest.")] = False,
    first: First = None,
    last: Last = None,
    from_: From = "",
    to: To = "",
    output: Output = Format.TABLE,
    verbose: Verbose = False,
) -> None:
    """Print the keys of a view with the largest or smallest totals. Reads every key of the range."""
    found = top(_open(view), n, _range(first, last, from_, to), smallest=smallest)
    if output is Format.JSON:
        print_json({"totals": _plain(found)})
        return
    _print(found)


def over_time(
    view: NameOrFolder,
    key: Annotated[str, typer.Argument(metavar="KEY", help='Key as JSON (12, "12", ["a", 1]) or as text.')],
    limit: Limit = 1_000,
    from_: From = "",
    to: To = "",
    output: Output = Format.TABLE,
    verbose: Verbose = False,
) -> None:
    """Print the buckets of one key by time, with their values and layers."""
    asked = _range(None, None, from_, to)
    found = series(_open(view), _key(key), limit, asked.from_ms, asked.to_ms)
    rows = [
        {"start": instant(each.start), "end": instant(each.end), "value": json_value(each.value), "owner": each.owner}
        for each in found.buckets
    ]
    following = None if found.next_ms is None else instant(found.next_ms)
    if output is Format.JSON:
        print_json({"key": json_value(_key(key)), "buckets": rows, "next": following})
        return
    columns = ("start", "end", "value", "owner")
    print_table(columns, [[row[name] for name in columns] for row in rows], ("value",))
    if following is not None:
        say(f"more: --from {following}")


def _open(name: str) -> View:
    try:
        import pyarrow  # noqa: F401  # with the first question it would be too late to say what is missing
    except ImportError:
        raise Unavailable(
            "views are read by pyarrow, which is not installed here", "Run: pip install 'heronry[archive]'"
        ) from None
    return read_view(name)


def _range(first: str | None, last: str | None, from_: str, to: str) -> Range:
    return Range(first, last, milliseconds("--from", from_), milliseconds("--to", to))


def _key(text: str) -> Any:
    """The key as JSON, or the text where it is none. Raises UsageError."""
    value = key_from(text)
    if isinstance(value, dict):
        raise UsageError(f"KEY {text!r} is an object, which is no key", f"A text is written as {json.dumps(text)}.")
    return value


def instant(ms: int) -> str:
    """Milliseconds since 1970 as ISO 8601 UTC."""
    moment = dt.datetime(1970, 1, 1, tzinfo=dt.UTC) + dt.timedelta(milliseconds=ms)
    return moment.isoformat().replace("+00:00", "Z")


def _plain(totals: Iterable[Total]) -> list[dict[str, Any]]:
    return [{"key": json_value(total.key), "value": json_value(total.value)} for total in totals]


def _print(totals: Iterable[Total]) -> None:
    rows = [[_text(total.key), json_value(total.value)] for total in totals]
    print_table(("key", "value"), rows, ("value",))


def _text(key: Any) -> str:
    """A key as `series` takes it: a text as it is, unless it reads as JSON, and other keys as JSON."""
    is_bare = isinstance(key, str) and not _is_json(key)
    return key if is_bare else json.dumps(json_value(key), ensure_ascii=False)


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


COMMANDS = (("keys", keys), ("top", largest), ("series", over_time))
