"""``heron doctor [ENGINE]``: what is missing on this machine, and how to mend it.

``heron_cli/diagnosis/`` has the checks: ``engines.py`` which there are for whom, ``look_*`` how facts are gathered,
``judge_*`` what follows from them.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer
from rich.text import Text

from heron_cli.address import parse_address
from heron_cli.console import Format, print_json, print_table, say
from heron_cli.diagnosis.engines import examine
from heron_cli.diagnosis.findings import Health, missing
from heron_cli.home import Home
from heron_cli.options import Output, Verbose
from heron_runtime.failures import Failure

_HELP = "local, docker, compose, swarm, slurm, k8s, spark, or a cluster such as swarm/ads/prod."
Engine = Annotated[str, typer.Argument(metavar="ENGINE", help=_HELP, show_default=False)]


def doctor(engine: Engine = "", output: Output = Format.TABLE, verbose: Verbose = False) -> None:
    """Check what this machine or an engine lacks. Exit code 1 if something is missing."""
    findings = list(examine(Home.of_user(), parse_address(engine).cluster if engine else ""))
    if output is Format.JSON:
        print_json([asdict(finding) for finding in findings])
    else:
        styles = {Health.GOOD: "green", Health.NOTE: "yellow", Health.BAD: "bold red"}
        rows = [(f.check, Text(f.verdict, style=styles[f.verdict]), f.found, f.cure) for f in findings]
        print_table(("check", "verdict", "found", "cure"), rows)
    if lacking := missing(findings):
        raise Failure(f"to be mended: {', '.join(lacking)}")
    say(f"everything that {engine or 'Heronry'} needs is here", "green")
