"""``heron pipeline run``, ``backfill`` and ``schedule``: batches that recompute merged views on Spark.

Heronry has no scheduler of its own. ``schedule`` prints a line of a crontab, a systemd service with its timer, or an
Airflow DAG. Two runs of a batch at once would be harmless (the slower one fails), but the schedules prevent them.
"""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from heron_cli.commands.spark_job import SparkSubmitOptions, run_job
from heron_cli.commands.views import ViewName
from heron_cli.console import print_line, print_message
from heron_cli.options import VerboseOption, parse_instant
from heron_runtime.failures import UsageError
from heron_runtime.user_home import home_of_user
from heronry.pipeline.registry import registered

LAST = "last"
EACH = re.compile(r"([1-9]\d?)(m|h|d)")
UNITS_IN_LARGER = {"m": 60, "h": 24, "d": 1}  # units in the next larger unit
MINUTE = 7  # of an hour, for hourly and daily runs: many other jobs begin at minute 0
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
    verbose: VerboseOption = False,
) -> None:
    """Recompute the views of a program by a batch on Spark, up to a time T.

    By default T is the time that the slowest source of the online topology has passed, at most the current time.

    Example: heron pipeline run word_count.py words
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
    verbose: VerboseOption = False,
) -> None:
    """Recompute the buckets of a time range and keep the others of the previous batch.

    Like `run`, but reads only the records of the range: those since the last batch (`--from last`), or those of days
    whose archive was repaired. By default the range ends at the T of `run`. If it ends earlier, the batch layer keeps
    its T.

    Example: heron pipeline backfill words --from last
    """
    _batch(what, program, arguments or (), from_, to, force, input_path or (), input_format, master, conf or ())


def _batch(
    what: str, program: str | None, arguments: Sequence[str], from_: str, to: str, force: bool,
    input_path: Sequence[str], input_format: str, master: str, conf: Sequence[str],
) -> None:  # fmt: skip
    since_last = from_ == LAST
    if not since_last:
        parse_instant("--from", from_)
    parse_instant("--to", to)
    view = None if Path(what).exists() else registered(what)
    if view is None:
        file, builder, program_arguments = Path(what), program, tuple(arguments)
        paths, format_ = tuple(input_path), input_format
    else:
        file, builder, program_arguments = Path(view.file), view.program or None, view.arguments
        paths, format_ = tuple(input_path or view.input_paths), input_format or view.input_format
    options = SparkSubmitOptions(paths, format_, "", "" if since_last else from_, to, master, conf)
    flags = [("--views", True), ("--force", force), ("--since-last", since_last)]
    run_job(file, builder, program_arguments, options, [flag for flag, wanted in flags if wanted])


class ScheduleFormat(StrEnum):
    """Scheduler that a schedule is printed for."""

    CRON = "cron"
    SYSTEMD = "systemd"
    AIRFLOW = "airflow"


@dataclass(frozen=True)
class ViewSchedule:
    """A command that runs once per interval of `every` units (m, h or d)."""

    view: str
    command: tuple[str, ...]
    home: str
    every: int
    unit: str


def parse_interval(text: str) -> tuple[int, str]:
    """Parse ``15m``, ``1h`` or ``1d``. Raises UsageError unless it divides the next larger unit."""
    match = EACH.fullmatch(text)
    if match is not None and UNITS_IN_LARGER[match[2]] % int(match[1]) == 0:
        return int(match[1]), match[2]
    raise UsageError(
        f"--each: invalid interval {text!r}",
        "Write minutes that divide an hour (15m), hours that divide a day (1h), or 1d.",
    )


def schedule(
    view: ViewName,
    each_: Annotated[str, typer.Option("--each", metavar="15m|1h|1d", help="Interval.")] = "1h",
    for_: Annotated[ScheduleFormat, typer.Option("--for", help="Scheduler.")] = ScheduleFormat.CRON,
    whole: Annotated[bool, typer.Option("--whole", help="Compute the whole batch each time.")] = False,
    verbose: VerboseOption = False,
) -> None:
    """Print a schedule of a view's batch for cron, systemd or Airflow.

    Example: heron pipeline schedule words --each 1h --for systemd
    """
    every, unit = parse_interval(each_)
    what = ("run", registered(view).name) if whole else ("backfill", registered(view).name, "--from", "last")
    command = (sys.executable, "-m", "heron_cli", "pipeline", *what)
    print_line(_TEXTS[for_](ViewSchedule(view, command, str(home_of_user()), every, unit)))
    print_message(_PLACES[for_].format(view=view))


def cron_line(plan: ViewSchedule) -> str:
    """Return a line of a crontab, with ``%`` escaped, since it would end the command."""
    fields = {
        "m": f"*/{plan.every} * * * *",
        "h": f"{MINUTE} */{plan.every} * * *",
        "d": f"{MINUTE} 0 * * *",
    }[plan.unit]
    lock = f"{plan.home}/pipeline/{plan.view}.lock"
    command = shlex.join(["env", f"HERONRY_HOME={plan.home}", "flock", "-n", lock, *plan.command])
    return f"{fields} {command}".replace("%", r"\%")


def systemd_units(plan: ViewSchedule) -> str:
    """Return a service and its timer, each below a comment with its file name."""
    calendar = {
        "m": f"*:0/{plan.every}",
        "h": f"0/{plan.every}:{MINUTE:02d}",
        "d": f"00:{MINUTE:02d}",
    }[plan.unit]
    name = f"heronry-{plan.view}"
    command = " ".join(_unit_word(word).replace("$", "$$") for word in plan.command)
    return f"""# {name}.service
[Unit]
Description=Batch of the Heronry view {plan.view}

[Service]
Type=oneshot
Environment={_unit_word(f"HERONRY_HOME={plan.home}")}
ExecStart={command}

# {name}.timer
[Unit]
Description=Timer of the batch of the Heronry view {plan.view}

[Timer]
OnCalendar={calendar}
Persistent=true

[Install]
WantedBy=timers.target"""


def _unit_word(word: str) -> str:
    """Quote a word for systemd, which expands ``%`` and backslashes."""
    quoted = word.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%")
    return f'"{quoted}"'


def airflow_dag(plan: ViewSchedule) -> str:
    """Return the file of a DAG."""
    minutes = plan.every * {"m": 1, "h": 60, "d": 24 * 60}[plan.unit]
    return f'''"""Batch of the Heronry view {plan.view}."""

from datetime import datetime, timedelta

from airflow.providers.standard.operators.bash import BashOperator
from airflow.sdk import DAG

with DAG(
    "heronry-{plan.view}",
    schedule=timedelta(minutes={minutes}),
    start_date=datetime(2026, 1, 1),
    catchup=False,  # a run processes all records since the last one
    max_active_runs=1,
):
    BashOperator(
        task_id="backfill",
        bash_command={shlex.join(plan.command)!r},
        env={{"HERONRY_HOME": {plan.home!r}}},
        append_env=True,
    )'''


_TEXTS = {ScheduleFormat.CRON: cron_line, ScheduleFormat.SYSTEMD: systemd_units, ScheduleFormat.AIRFLOW: airflow_dag}
_PLACES = {
    ScheduleFormat.CRON: "add the line to a crontab: crontab -e",
    ScheduleFormat.SYSTEMD: (
        "put both files into ~/.config/systemd/user, then: systemctl --user enable --now heronry-{view}.timer"
    ),
    ScheduleFormat.AIRFLOW: "put the file into Airflow's folder of DAGs; its workers need the command",
}
