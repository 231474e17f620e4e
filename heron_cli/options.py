"""Arguments and options that several commands share, and parsers of their values."""

from __future__ import annotations

import datetime as dt
import math
import re
from collections.abc import Mapping
from typing import Annotated, Any

import typer

from heron_cli.clusters import SLURM
from heron_cli.console import Format, set_verbose
from heron_runtime.failures import UsageError
from heron_runtime.model.settings import OF_DEFINITION
from heronry.api.config import parse_property
from heronry.api.errors import ConfigError

SLURM_PREFIX = "heron.slurm."
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_UNIT_SECONDS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}


def _set_verbose(value: bool) -> bool:
    set_verbose(value)
    return value


ClusterArgument = Annotated[
    str,
    typer.Argument(metavar="CLUSTER[/ROLE[/ENV]]", help="Cluster, role and environment, for example local/ads/prod."),
]
TopologyArgument = Annotated[str, typer.Argument(metavar="TOPOLOGY", help="Name of the topology.")]
OutputOption = Annotated[Format, typer.Option("--output", "-o", help="Output format.")]
VerboseOption = Annotated[
    bool, typer.Option("--verbose", "-v", callback=_set_verbose, help="Print details and tracebacks.")
]
WaitOption = Annotated[bool, typer.Option("--wait/--no-wait", help="Wait until every task runs.")]
WaitTimeoutOption = Annotated[float, typer.Option("--wait-timeout", min=0.0, metavar="SECONDS", help="Longest wait.")]


def given_options(context: typer.Context) -> dict[str, str]:
    """Return the parameters that were given on the command line, with the flag or the name of each."""
    given = {}
    for parameter in context.command.params:
        source = context.get_parameter_source(parameter.name or "")
        if source is not None and source.name == "COMMANDLINE":
            given[parameter.name or ""] = max(parameter.opts, key=len)
    return given


def read_property(text: str) -> tuple[str, Any]:
    """Parse ``KEY=VALUE`` and check the value. Raises UsageError."""
    try:
        return parse_property(text)
    except ConfigError as error:
        raise UsageError(str(error)) from error


def reject_idle_keys(given: Mapping[str, Any], cluster: str) -> None:
    """Reject keys without effect on topologies that are submitted to the cluster. Raises UsageError."""
    for key in given:
        if key in OF_DEFINITION:
            raise UsageError(
                f"{key} applies while a program is defined, and has no effect later",
                "Set par=… at a component, or the key in the program. `heron update` changes a running topology.",
            )
        if key.startswith(SLURM_PREFIX) and cluster != SLURM:
            raise UsageError(f"{key} is for the cluster {SLURM}, and has no effect on {cluster}", "Leave it out.")


def parse_instant(option: str, text: str) -> int | None:
    """Parse an instant: ISO 8601 (UTC by default) or seconds since 1970.

    Args:
        option: Name of the option, for the error.
        text: Value of the option.

    Returns:
        Milliseconds since 1970, None for an empty text.

    Raises:
        UsageError: The text has another form.
    """
    if not text:
        return None
    try:
        number = float(text)
    except ValueError:
        pass
    else:
        if math.isfinite(number):
            return round(number * 1000)
    try:
        return _milliseconds(dt.datetime.fromisoformat(text))
    except ValueError:
        raise UsageError(
            f"{option}: invalid time {text!r}", "Write it as 2026-11-21T07:00:00Z, or as seconds since 1970."
        ) from None


def parse_past_instant(text: str, now: float) -> int | None:
    """Parse an instant: ISO 8601 (UTC by default), or a duration before `now` such as ``90m``.

    Args:
        text: Value of the option.
        now: Seconds since 1970.

    Returns:
        Milliseconds since 1970, None for an empty text.

    Raises:
        UsageError: The text has another form.
    """
    if not text:
        return None
    amount, unit = text[:-1], text[-1]
    try:
        if unit in _UNIT_SECONDS and amount.replace(".", "", 1).isdecimal():
            return max(0, round((now - float(amount) * _UNIT_SECONDS[unit]) * 1000))
        return max(0, _milliseconds(dt.datetime.fromisoformat(text)))
    except (ValueError, OverflowError):
        raise UsageError(
            f"invalid time {text!r}", "Write 2026-11-25, 2026-11-25T10:00, or 90m, 12h or 7d for a time ago."
        ) from None


def parse_duration(text: str) -> int | None:
    """Parse ``30d``, ``12h`` or ``90m`` as seconds; None for an empty text. Raises UsageError."""
    if not text:
        return None
    match = re.fullmatch(r"([1-9]\d{0,6})([mhd])", text)
    if not match:
        raise UsageError(f"invalid duration {text!r}", "Write it as 30d, 12h or 90m.")
    return int(match[1]) * _UNIT_SECONDS[match[2]]


def format_instant(ms: int) -> str:
    """Format milliseconds since 1970 as ISO 8601 in UTC."""
    return (_EPOCH + dt.timedelta(milliseconds=ms)).isoformat().replace("+00:00", "Z")


def _milliseconds(moment: dt.datetime) -> int:
    aware = moment if moment.tzinfo is not None else moment.replace(tzinfo=dt.UTC)
    return (aware - _EPOCH) // dt.timedelta(milliseconds=1)
