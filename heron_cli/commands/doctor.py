"""``heron doctor`` and ``heron version``: the state of this installation. The checks are in ``heron_cli.diagnosis``."""

from __future__ import annotations

import platform
from dataclasses import asdict
from importlib.metadata import version as installed
from typing import Annotated

import typer
from rich.text import Text

from heron_cli.clusters import parse_cluster_address
from heron_cli.console import Format, print_json, print_message, print_table
from heron_cli.home import Home
from heron_cli.options import OutputOption, VerboseOption
from heron_runtime.failures import Failure
from heronry.version import VERSION

_HELP = "local, docker, compose, swarm, slurm, k8s, spark, or a cluster such as swarm/ads/prod."
Engine = Annotated[str, typer.Argument(metavar="ENGINE", help=_HELP, show_default=False)]


def doctor(engine: Engine = "", output: OutputOption = Format.TABLE, verbose: VerboseOption = False) -> None:
    """Check the requirements of this machine or of an engine. Exit code 1 if one is not met.

    Example: heron doctor docker
    """
    from heron_cli.diagnosis.checks import examine  # imported here, since `version` does not need it
    from heron_cli.diagnosis.findings import CheckStatus, missing

    findings = list(examine(Home.of_user(), parse_cluster_address(engine).cluster if engine else ""))
    if output is Format.JSON:
        print_json([asdict(finding) for finding in findings])
    else:
        styles = {CheckStatus.GOOD: "green", CheckStatus.NOTE: "yellow", CheckStatus.BAD: "bold red"}
        rows = [(f.check, Text(f.verdict, style=styles[f.verdict]), f.found, f.cure) for f in findings]
        print_table(("check", "verdict", "found", "cure"), rows)
    if failed := missing(findings):
        raise Failure(f"failed checks: {', '.join(failed)}")
    print_message(f"all requirements of {engine or 'Heronry'} are met", "green")


def version(output: OutputOption = Format.TABLE) -> None:
    """Show the versions of Heronry and of its main dependencies.

    Example: heron version
    """
    versions = {
        "heronry": VERSION,
        "python": platform.python_version(),
        "grpc": installed("grpcio"),
        "protobuf": installed("protobuf"),
    }
    if output is Format.JSON:
        print_json(versions)
    else:
        print_table(("part", "version"), list(versions.items()))
