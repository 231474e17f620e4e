"""``heron pipeline roll-up``, ``history`` and ``advise``: the history of topologies, including killed ones."""

from __future__ import annotations

import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer

from heron_cli.commands.spark_job import check_spark_properties, require_pyspark, run_process
from heron_cli.console import (
    Format,
    format_age,
    format_bytes,
    is_verbose,
    print_json,
    print_line,
    print_message,
    print_table,
)
from heron_cli.options import OutputOption, VerboseOption, parse_past_instant
from heron_control.history.advice import Advice, Advised
from heron_control.history.advice import advise as advice_from
from heron_control.history.reading import MAX_EVENTS, Events, History, find, loads, newest_first
from heron_runtime.failures import NotFound, UsageError
from heron_runtime.history_folder import places, read_about
from heron_runtime.model.history import HISTORY, KINDS, LEVEL_MS, HistoryEvent, SubmissionPath
from heron_runtime.user_home import home_of_user


def show_events(history: History, query: Events, output: Format) -> None:
    """Print events of a topology.

    Raises:
        UsageError: A kind of events is unknown.
        Unavailable: DuckDB is not installed.
    """
    events = history.events(query)
    if output is Format.JSON:
        print_json([_event_document(each) for each in events])
        return
    print_line(f"events of {history.place.topology} ({history.place.id}), newest first")
    rows = [[_at(e.time_ms), e.kind, e.container, e.component or None, e.count, e.text] for e in events]
    print_table(("time", "kind", "container", "component", "count", "what"), rows, ("container", "count"))
    if len(events) == query.limit:
        print_line(f"there may be more events before {_at(events[-1].time_ms)}: use --until, or a larger --limit")


def _at(time_ms: int) -> str:
    return datetime.fromtimestamp(time_ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _event_document(each: HistoryEvent) -> dict[str, object]:
    return {
        "time": _at(each.time_ms), "kind": each.kind, "container": each.container, "component": each.component or None,
        "instance": each.instance or None, "count": each.count, "text": each.text, "detail": each.detail or None,
    }  # fmt: skip


COLUMNS = ("component", "tasks", "advised", "demand/s", "a task can/s", "load", "held", "cpu s", "memory", "why")
NUMBERS = COLUMNS[1:9]
Folder = Annotated[
    Path | None,
    typer.Option("--history", metavar="FOLDER", help="Folder of the history. Default: history/ in the home folder."),
]


def roll_up(
    folder: Folder = None,
    keep: Annotated[
        list[str] | None,
        typer.Option("--keep", metavar="LEVEL=DAYS", help="Days to keep a level, for example 1m=30. Repeatable."),
    ] = None,
    audit: Annotated[
        list[Path] | None,
        typer.Option("--audit", metavar="FILE", help="audit.jsonl of an API server to add. Repeatable."),
    ] = None,
    master: Annotated[str, typer.Option(help="local[*] or spark://…. The workers need access to the folder.")] = "",
    conf: Annotated[
        list[str] | None, typer.Option("--conf", metavar="spark.KEY=VALUE", help="Spark property. Repeatable.")
    ] = None,
    verbose: VerboseOption = False,
) -> None:
    """Roll up the history of all topologies on Spark: 10 s to 1 min, 10 min, 1 h and 1 day.

    It also compacts the files of finished days and removes old data.

    Example: heron pipeline roll-up --keep 1m=30
    """
    for pair in keep or ():
        level, _, days = pair.partition("=")
        if level not in LEVEL_MS or not days.isdecimal() or int(days) < 1:
            raise UsageError(f"--keep: invalid value {pair!r}", f"Write LEVEL=DAYS; levels are {', '.join(LEVEL_MS)}.")
    check_spark_properties(conf or ())
    require_pyspark()
    command = [sys.executable, "-P", "-m", "data_pipeline", str(_root(folder)), "--roll-up"]
    command += [
        part
        for name, values in (("--keep-days", keep), ("--conf", conf), ("--audit", audit))
        for value in values or ()
        for part in (name, str(value))
    ]
    command += [f"--master={master}"] if master else []
    run_process([*command, *(["--verbose"] if is_verbose() else []), "--"])


def history(
    topology: Annotated[
        str,
        typer.Argument(metavar="[TOPOLOGY]", help="Name of the topology, or CLUSTER/ROLE/ENV/NAME."),
    ] = "",
    events: Annotated[
        bool, typer.Option("--events", help="Only the events of its newest submission, the newest first.")
    ] = False,
    kind: Annotated[list[str] | None, typer.Option("--kind", help=f"Only {', '.join(KINDS)}. Repeatable.")] = None,
    since: Annotated[
        str, typer.Option(metavar="TIME", help="Start: 2026-11-25T10:00 (UTC), or 90m, 12h or 7d ago.")
    ] = "",
    until: Annotated[str, typer.Option(metavar="TIME", help="End, in the same form.")] = "",
    submission: Annotated[
        str, typer.Option("--id", metavar="ID", help="Id of a submission. Default: the newest.")
    ] = "",
    limit: Annotated[int, typer.Option(min=1, max=MAX_EVENTS, help="Largest number of events.")] = 20,
    folder: Folder = None,
    output: OutputOption = Format.TABLE,
    verbose: VerboseOption = False,
) -> None:
    """List topologies with a history, including killed ones, or the submissions and events of one topology.

    Example: heron pipeline history WordCount --events --since 12h
    """
    root = _root(folder)
    if events or kind or since or until or submission:
        if not topology:
            raise UsageError("TOPOLOGY is missing", "Write heron pipeline history TOPOLOGY --events.")
        now = time.time()
        query = Events(frozenset(kind or ()), parse_past_instant(since, now), parse_past_instant(until, now), limit)
        show_events(History(root / find(root, topology, submission).path), query, output)
        return
    *target, name = topology.split("/")
    matches = [p for p in places(root) if name in ("", p.topology) and p.path.startswith("/".join(target))]
    ordered = newest_first(root, matches)
    rows = [_submission(root, place, at) for place, at in ordered]
    if output is Format.JSON:
        print_json(rows)
        return
    if not rows:
        print_message(f"no history in {root}; submit with --config-property heron.history.enabled=true")
        return
    columns = ("topology", "place", "id", "submitted", "tasks", "size")
    print_table(
        columns, [[r[c] if c != "size" else format_bytes(r["bytes"]) for c in columns] for r in rows], columns[4:]
    )
    if topology:
        show_events(History(root / ordered[0][0].path), Events(limit=limit), output)


def advise(
    topology: Annotated[
        str, typer.Argument(metavar="TOPOLOGY", help="Name of the topology, or CLUSTER/ROLE/ENV/NAME.")
    ],
    minutes: Annotated[float, typer.Option("--minutes", min=1.0, help="Length of the history to analyze.")] = 60.0,
    folder: Folder = None,
    output: OutputOption = Format.TABLE,
    verbose: VerboseOption = False,
) -> None:
    """Advise the number of tasks of each component. The last line is the command to run.

    Example: heron pipeline advise WordCount --minutes 120
    """
    root = _root(folder)
    place = find(root, topology)
    stored = History(root / place.path)
    about, times = read_about(stored.folder), stored.times()
    if about is None or times is None:
        raise NotFound(
            f"the history of {place.topology} has no rows yet",
            "The first rows are written ten seconds after the start.",
        )
    first = max(times[0], times[1] - round(minutes * 60_000))
    advice = advice_from(loads(stored, about, first, times[1]))
    command = advice.command(place.target, place.topology)
    if output is Format.JSON:
        print_json(_advice_document(place, advice, first, times[1], command))
        return
    print_line(f"{place.topology} at {place.target}, {_describe_span(first, times[1])}")
    print_table(COLUMNS, [_advice_row(each) for each in advice.components], NUMBERS)
    if advice.bottleneck is not None and advice.bottleneck.load is not None:
        print_line(
            f"bottleneck: {advice.bottleneck.component.name}, {advice.bottleneck.load:.0%} of the capacity of its tasks"
        )
    for text in advice.notes:
        print_line(text, "yellow")
    print_line(command or "nothing to change")


def _root(folder: Path | None) -> Path:
    return folder.absolute() if folder is not None else home_of_user() / HISTORY


def _submission(root: Path, place: SubmissionPath, submitted_at: float) -> dict[str, Any]:
    about = read_about(root / place.path)
    return {
        "topology": place.topology, "place": place.target, "id": place.id,
        "submitted": datetime.fromtimestamp(submitted_at, UTC).isoformat(timespec="seconds"),
        "tasks": sum(part.parallelism for part in about.parts) if about is not None else None,
        "bytes": sum(file.stat().st_size for file in (root / place.path).rglob("*") if file.is_file()),
    }  # fmt: skip


def _describe_span(from_ms: int, to_ms: int) -> str:
    ago = time.time() - to_ms / 1000
    return f"{format_age((to_ms - from_ms) / 1000)} of its history, up to {format_age(max(0.0, ago))} ago"


def _advice_row(each: Advised) -> list[object]:
    component, rate = each.component, each.component.true_rate
    return [
        component.name,
        component.parallelism,
        each.tasks,
        None if each.demand is None else f"{each.demand:,.0f}",
        None if rate is None else f"{rate:,.0f}",
        None if each.load is None else f"{each.load:.0%}",
        f"{component.held:.0%}",
        f"{sum(task.cpu_secs for task in component.tasks):,.1f}",
        format_bytes(round(max((task.memory_bytes for task in component.tasks), default=0))),
        each.why or None,
    ]


def _advice_document(place: SubmissionPath, advice: Advice, from_ms: int, to_ms: int, command: str) -> dict[str, Any]:
    return {
        "topology": place.topology, "place": place.target, "id": place.id, "from_ms": from_ms, "to_ms": to_ms,
        "components": [
            {
                "component": each.component.name, "tasks": each.component.parallelism, "advised": each.tasks,
                "demand_per_second": each.demand, "true_rate": each.component.true_rate, "load": each.load,
                "held": each.component.held, "caused_secs": each.component.caused_secs,
                "cpu_secs": sum(task.cpu_secs for task in each.component.tasks),
                "memory_bytes": max((task.memory_bytes for task in each.component.tasks), default=0),
                "why": each.why,
            }
            for each in advice.components
        ],
        "bottleneck": advice.bottleneck.component.name if advice.bottleneck is not None else None,
        "notes": list(advice.notes), "command": command or None,
    }  # fmt: skip
