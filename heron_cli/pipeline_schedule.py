"""``heron pipeline schedule``: what has the batch of a view run again and again, for a scheduler that exists.

Heronry starts nothing by itself at a time. This prints a line of a crontab, a systemd timer with its service, or a DAG
of Airflow, to be put where it belongs. Two runs at once would do no harm (the slower one fails), but are kept apart.
"""

from __future__ import annotations

import re
import shlex
import sys
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated

import typer

from heron_cli.console import print_line, say
from heron_cli.options import Verbose
from heron_cli.view_answers import ViewName
from heron_runtime.failures import UsageError
from heron_runtime.user_home import home_of_user
from heronry.pipeline.registry import registered

EACH = re.compile(r"([1-9]\d?)(m|h|d)")
WITHIN = {"m": 60, "h": 24, "d": 1}  # how many of them are in the next larger unit
MINUTE = 7  # of an hour, at which what runs each hour or seldomer begins: many things begin at 0


class Scheduler(StrEnum):
    """Who starts it."""

    CRON = "cron"
    SYSTEMD = "systemd"
    AIRFLOW = "airflow"


@dataclass(frozen=True)
class Recurring:
    """What is to be started: ``every`` so many of ``unit`` (m, h, d)."""

    view: str
    command: tuple[str, ...]
    home: str
    every: int
    unit: str


def each(text: str) -> tuple[int, str]:
    """``15m``, ``1h``, ``1d``. Raises UsageError for what does not divide the next larger unit: no calendar has it."""
    found = EACH.fullmatch(text)
    if found is not None and WITHIN[found[2]] % int(found[1]) == 0:
        return int(found[1]), found[2]
    raise UsageError(
        f"--each {text!r} is no time that a calendar has",
        "Write minutes that divide an hour (15m), hours that divide a day (1h), or 1d.",
    )


def schedule(
    view: ViewName,
    each_: Annotated[str, typer.Option("--each", metavar="15m|1h|1d", help="Interval.")] = "1h",
    for_: Annotated[Scheduler, typer.Option("--for", help="Scheduler.")] = Scheduler.CRON,
    whole: Annotated[bool, typer.Option("--whole", help="Compute the whole batch each time.")] = False,
    verbose: Verbose = False,
) -> None:
    """Print a schedule of a view's batch for cron, systemd or Airflow."""
    every, unit = each(each_)
    what = ("run", registered(view).name) if whole else ("backfill", registered(view).name, "--from", "last")
    command = (sys.executable, "-m", "heron_cli", "pipeline", *what)
    print_line(_TEXTS[for_](Recurring(view, command, str(home_of_user()), every, unit)))
    say(_PLACES[for_].format(view=view))


def cron_line(found: Recurring) -> str:
    """One line of a crontab. cron has no seconds, ends a command at ``%``, and mails what is printed."""
    fields = {
        "m": f"*/{found.every} * * * *",
        "h": f"{MINUTE} */{found.every} * * *",
        "d": f"{MINUTE} 0 * * *",
    }[found.unit]
    lock = f"{found.home}/pipeline/{found.view}.lock"
    command = shlex.join(["env", f"HERONRY_HOME={found.home}", "flock", "-n", lock, *found.command])
    return f"{fields} {command}".replace("%", r"\%")


def systemd_units(found: Recurring) -> str:
    """A service and its timer, one after the other, each under its name."""
    calendar = {
        "m": f"*:0/{found.every}",
        "h": f"0/{found.every}:{MINUTE:02d}",
        "d": f"00:{MINUTE:02d}",
    }[found.unit]
    name = f"heronry-{found.view}"
    command = " ".join(_unit_word(word).replace("$", "$$") for word in found.command)
    return f"""# {name}.service
[Unit]
Description=The batch of Heronry's view {found.view}

[Service]
Type=oneshot
Environment={_unit_word(f"HERONRY_HOME={found.home}")}
ExecStart={command}

# {name}.timer
[Unit]
Description=When the batch of Heronry's view {found.view} runs

[Timer]
OnCalendar={calendar}
Persistent=true

[Install]
WantedBy=timers.target"""


def _unit_word(word: str) -> str:
    """In quotes. systemd reads ``%`` and backslashes in a word, and in those of a command ``$``, too."""
    quoted = word.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%")
    return f'"{quoted}"'


def airflow_dag(found: Recurring) -> str:
    """A file for Airflow's folder of DAGs."""
    minutes = found.every * {"m": 1, "h": 60, "d": 24 * 60}[found.unit]
    return f'''"""The batch of Heronry's view {found.view}."""

from datetime import datetime, timedelta

from airflow.providers.standard.operators.bash import BashOperator
from airflow.sdk import DAG

with DAG(
    "heronry-{found.view}",
    schedule=timedelta(minutes={minutes}),
    start_date=datetime(2026, 1, 1),
    catchup=False,  # a run takes all that has come since the last one
    max_active_runs=1,
):
    BashOperator(
        task_id="backfill",
        bash_command={shlex.join(found.command)!r},
        env={{"HERONRY_HOME": {found.home!r}}},
        append_env=True,
    )'''


_TEXTS = {Scheduler.CRON: cron_line, Scheduler.SYSTEMD: systemd_units, Scheduler.AIRFLOW: airflow_dag}
_PLACES = {
    Scheduler.CRON: "add the line to a crontab: crontab -e",
    Scheduler.SYSTEMD: "put both into ~/.config/systemd/user, then: systemctl --user enable --now heronry-{view}.timer",
    Scheduler.AIRFLOW: "put it into Airflow's folder of DAGs; the command has to be there, on its workers",
}
