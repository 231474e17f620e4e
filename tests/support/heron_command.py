"""Run ``heron`` commands that only read in the process of the test."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from typer.testing import CliRunner

from heron_cli.application import make_app


def query_json(*arguments: str, environment: Mapping[str, str]) -> Any:
    """Return what ``heron ARGUMENTS -o json`` prints, without a new interpreter.

    For commands that tests poll, such as ``status``: a process costs half a second of CPU.

    Raises:
        AssertionError: The command has failed.
    """
    done = CliRunner().invoke(make_app(arguments[0]), [*arguments, "-o", "json"], env=dict(environment))
    assert done.exit_code == 0, f"heron {' '.join(arguments)}: exit {done.exit_code}\n{done.output}"
    return json.loads(done.stdout)
