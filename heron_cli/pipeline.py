"""``heron pipeline``: batches for the merged views of streamlet programs, and what is known of these views."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from heron_cli.console import Format, print_json, print_line, print_table, say
from heron_cli.history import COMMANDS as HISTORY_COMMANDS
from heron_cli.options import Output, Verbose
from heron_cli.pipeline_schedule import schedule
from heron_cli.spark_submit import SparkOptions, milliseconds, run_job
from heron_cli.view_answers import COMMANDS as ANSWERS
from heron_cli.view_answers import VIEW_HELP, instant
from heronry.pipeline.registry import Registered, all_registered, registered
from heronry.pipeline.views import FOREVER, ViewError, batches, online_files, open_view, read_description, settled_ms

LAST = "last"
What = Annotated[str, typer.Argument(metavar="FILE|VIEW", help="Program file, or a view after the first run.")]
Builder = Annotated[str | None, typer.Argument(metavar="[PROGRAM]", help="Builder in FILE.")]
Given = Annotated[list[str] | None, typer.Argument(metavar="[ARGS]...", help="Arguments of the program.")]
To = Annotated[str, typer.Option("--to", metavar="TIME", help="End T of the batch.")]
Force = Annotated[bool, typer.Option("--force", help="Allow T beyond the progress of the online layer.")]
InputPath = Annotated[
    list[str] | None,
    typer.Option(
        "--input-path", metavar="[STEP=]URL", help="Input folder. Default: the archive of the program, or its sources."
    ),
]
InputFormat = Annotated[str, typer.Option(help="text, json, csv, parquet, orc or archive.")]
Master = Annotated[str, typer.Option(help="local[*], spark://…, yarn or k8s://….")]
Conf = Annotated[
    list[str] | None, typer.Option("--conf", metavar="spark.KEY=VALUE", help="Spark property. Repeatable.")
]


def run(
    what: What,
    program: Builder = None,
    arguments: Given = None,
    to: To = "",
    force: Force = False,
    input_path: InputPath = None,
    input_format: InputFormat = "",
    master: Master = "",
    conf: Conf = None,
    verbose: Verbose = False,
) -> None:
    """Recompute the views of a program by a batch on Spark, up to an instant T.

    By default T is what the slowest source of the online topology has passed, and now at the latest.
    """
    _batch(what, program, arguments or (), "", to, force, input_path or (), input_format, master, conf or ())


def backfill(
    what: What,
    from_: Annotated[
        str,
        typer.Option("--from", metavar="TIME|last", help="Start of a bucket of the view; last: T of the previous run."),
    ],
    program: Builder = None,
    arguments: Given = None,
    to: To = "",
    force: Force = False,
    input_path: InputPath = None,
    input_format: InputFormat = "",
    master: Master = "",
    conf: Conf = None,
    verbose: Verbose = False,
) -> None:
    """Recompute the buckets of a time range and keep the others of the previous batch.

    Reads only the records between `--from` and `--to`, where `run` reads all. Use it for what has arrived since the
    last batch (`--from last`), or for days whose archive was repaired. `--to` defaults to the end T that `run` would
    choose. With an earlier `--to`, the batch still owns all buckets that the previous batch owned.
    """
    _batch(what, program, arguments or (), from_, to, force, input_path or (), input_format, master, conf or ())


def _batch(
    what: str, program: str | None, arguments: Sequence[str], from_: str, to: str, force: bool,
    input_path: Sequence[str], input_format: str, master: str, conf: Sequence[str],
) -> None:  # fmt: skip
    since_last = from_ == LAST
    if not since_last:
        milliseconds("--from", from_)
    milliseconds("--to", to)
    known = None if Path(what).exists() else registered(what)
    if known is None:
        file, chosen, given = Path(what), program, tuple(arguments)
        paths, form = tuple(input_path), input_format
    else:
        file, chosen, given = Path(known.file), known.program or None, known.arguments
        paths, form = tuple(input_path or known.input_paths), input_format or known.input_format
    options = SparkOptions(paths, form, "", "" if since_last else from_, to, master, conf)
    flags = [("--views", True), ("--force", force), ("--since-last", since_last)]
    run_job(file, chosen, given, options, [flag for flag, wanted in flags if wanted])


def status(
    view: Annotated[str, typer.Argument(metavar="VIEW", help=VIEW_HELP)],
    output: Output = Format.TABLE,
    verbose: Verbose = False,
) -> None:
    """Print the state of the batch and online layers of a view."""
    found = state_of(registered(view))
    if output is Format.JSON:
        print_json(found)
        return
    rows = [("view", found["view"]), ("folder", found["path"]), ("program", found["program"] or "")]
    rows += [("reducer", f"{found['monoid'] or 'of the program'}, buckets of {found['bucket_ms']} ms")]
    rows += [("batch", _told(batch)) for batch in found["batches"]]
    rows += [("batch", "none yet")] if not found["batches"] else []
    online = found["online"]
    owned = f" ({online['owned_by_batch']} more are the batch's)" if online["owned_by_batch"] else ""
    rows += [("online", f"{online['buckets']} buckets from T on{owned}, written {online['written_at'] or 'never'}")]
    rows += [("sources", f"have passed {online['seen_to'] or 'nothing that is known'}")]
    for name, text in rows:
        print_line(f"{name:<9}{text}")
    say(found["promise"])


def _told(batch: dict[str, Any]) -> str:
    part = batch["backfill"]
    anew = f"; from {part['from']} to {part['to']} anew, the rest of version {part['version']}" if part else ""
    return f"version {batch['version']} up to {batch['to']}, written {batch['written_at']}{anew}"


def views(output: Output = Format.TABLE, verbose: Verbose = False) -> None:
    """List the views that have a batch."""
    rows = []
    for view in all_registered():
        try:
            newest = open_view(Path(view.path)).to_ms
        except ViewError:
            newest = None
        to = None if newest is None else instant(newest)
        program = view.program or None
        rows.append({"view": view.name, "to": to, "path": view.path, "file": view.file, "program": program})
    if output is Format.JSON:
        print_json(rows)
        return
    if not rows:
        say("no view yet: `heron pipeline run FILE PROGRAM` runs the batch of a program's views")
        return
    columns = ("view", "to", "path", "file", "program")
    print_table(columns, [[row[c] for c in columns] for row in rows])


def state_of(view: Registered) -> dict[str, Any]:
    """Everything ``status`` shows. Raises ViewError."""
    folder = Path(view.path)
    found, description = open_view(folder), read_description(folder)
    online = list(online_files(folder, found.to_ms))
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
                "version": b.version, "to": instant(b.to_ms), "written_at": b.manifest.get("written_at"),
                "backfill": _backfilled(b.manifest),
            }
            for b in reversed(batches(folder))
        ],
        "online": {
            "buckets": len({row.start for file in online for row in file.rows}),
            "owned_by_batch": len(owned),
            "seen_to": None if seen is None else "their end" if seen >= FOREVER else instant(seen),
            "written_at": None if written is None else instant(written),
        },
        "promise": found.promise,
    }  # fmt: skip


def _backfilled(manifest: Mapping[str, Any]) -> dict[str, Any] | None:
    """Which part of a batch was computed by itself, and whose the rest is."""
    part = manifest.get("backfill")
    if part is None:
        return None
    return {"version": part["version"], "from": instant(part["from_ms"]), "to": instant(part["to_ms"])}


COMMANDS = (
    ("run", run),
    ("backfill", backfill),
    ("schedule", schedule),
    ("status", status),
    ("views", views),
    *ANSWERS,
    *HISTORY_COMMANDS,
)
