"""Table of commands and the help generated from it."""

from __future__ import annotations

import inspect
import os
import pkgutil
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from heron_cli.application import _COMMANDS, _GROUPS, make_app

LIST_MODULES = """
import atexit, sys
atexit.register(lambda: sys.stderr.write(" ".join(sys.modules)))
from heron_cli.__main__ import main
main()
"""


@pytest.mark.parametrize("name", _COMMANDS)
def test_help_summary_is_the_first_docstring_line(name: str) -> None:
    function = pkgutil.resolve_name(_COMMANDS[name].target)
    lines = (inspect.getdoc(function) or "").splitlines()
    assert lines[0].startswith(_COMMANDS[name].summary)


def test_every_command_has_an_example() -> None:
    targets = {f"heron {name}": entry.target for name, entry in _COMMANDS.items() if name != "tracker"}
    for group, entry in _GROUPS.items():
        targets |= {f"heron {group} {name}": target for name, target in entry.targets.items()}
    for command, target in targets.items():
        assert f"Example: {command}" in (inspect.getdoc(pkgutil.resolve_name(target)) or ""), command


def test_help_lists_all_commands_without_importing_them(tmp_path: Path) -> None:
    environment = {**os.environ, "HERONRY_HOME": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", LIST_MODULES, "--help"], env=environment, capture_output=True, text=True, check=True,
        timeout=120,
    )  # fmt: skip
    assert not [name for name in done.stderr.split() if name.startswith(("heron_cli.commands", "heron_cli.clusters"))]
    loaded = CliRunner().invoke(make_app(), ["--help"], prog_name="heron").stdout
    assert done.stdout.split() == loaded.split()
    for name in (*_COMMANDS, *_GROUPS):
        assert f"\n  {name} " in done.stdout, name
