"""Arguments and options that several commands share."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import typer

from heron_cli.address import SLURM
from heron_cli.console import Format, set_verbose
from heron_runtime.failures import UsageError
from heron_runtime.model.settings import OF_DEFINITION
from heronry.api.config import parse_property
from heronry.api.errors import ConfigError


def read_property(text: str) -> tuple[str, Any]:
    """``KEY=VALUE`` as key and checked value. Raises UsageError."""
    try:
        return parse_property(text)
    except ConfigError as error:
        raise UsageError(str(error)) from error


def refuse_idle_keys(given: Mapping[str, Any], cluster: str) -> None:
    """Raises UsageError for a key that would have no effect on topologies submitted to this cluster."""
    for key in given:
        if key in OF_DEFINITION:
            raise UsageError(
                f"{key} holds while a program is defined, and has no effect later",
                "Write par=… at a component, or the key in the program; `heron update` changes what runs.",
            )
        if key.startswith(OF_SLURM) and cluster != SLURM:
            raise UsageError(f"{key} is for the cluster {SLURM}, and has no effect on {cluster}", "Leave it out.")


def typed(context: typer.Context) -> dict[str, str]:
    """Return the parameters that were given on the command line, with the flag or the name of each."""
    given = {}
    for parameter in context.command.params:
        source = context.get_parameter_source(parameter.name or "")
        if source is not None and source.name == "COMMANDLINE":
            given[parameter.name or ""] = max(parameter.opts, key=len)
    return given


def _verbose(value: bool) -> bool:
    set_verbose(value)
    return value


OF_SLURM = "heron.slurm."
Place = Annotated[
    str,
    typer.Argument(metavar="CLUSTER[/ROLE[/ENV]]", help="Cluster, role and environment, for example local/ads/prod."),
]
Name = Annotated[str, typer.Argument(metavar="TOPOLOGY", help="Name of the topology.")]
Output = Annotated[Format, typer.Option("--output", "-o", help="Output format.")]
Verbose = Annotated[bool, typer.Option("--verbose", "-v", callback=_verbose, help="Print details and tracebacks.")]
Wait = Annotated[bool, typer.Option("--wait/--no-wait", help="Wait until every task runs.")]
WaitTimeout = Annotated[float, typer.Option("--wait-timeout", min=0.0, metavar="SECONDS", help="Longest wait.")]
