"""Table of commands and its help, arguments of the user's program, and printed output: one line, complete numbers."""

from __future__ import annotations

import inspect
import io
import json
import os
import pkgutil
import subprocess
import sys
from pathlib import Path
from typing import Annotated

import pytest
import typer
from typer.testing import CliRunner

from heron_cli.application import _COMMANDS, _GROUPS, PassThroughCommand, make_app
from heron_cli.commands.status import print_status
from heron_cli.console import print_json, print_table
from heron_control.inspection.topology_status import ProcessReplies, topology_status
from heron_runtime.model.records import TopologyRecord
from heron_runtime.wire.container import ContainerStatus
from heron_runtime.wire.metrics import ExceptionReport
from tests.support.stub_processes import all_processes, definition, execution, packing

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


app = typer.Typer()


@app.command(cls=PassThroughCommand)
def show(
    file: str,
    topology: Annotated[str | None, typer.Argument()] = None,
    arguments: Annotated[list[str] | None, typer.Argument()] = None,
    name: Annotated[str, typer.Option("--name")] = "",
) -> None:
    typer.echo(repr((file, topology, arguments or [], name)))


@pytest.mark.parametrize(
    ("typed", "expected"),
    [
        (["f"], ("f", None, [], "")),
        (["f", "--", "a"], ("f", None, ["a"], "")),
        (["f", "t", "--", "a", "--name", "b"], ("f", "t", ["a", "--name", "b"], "")),
        (["f", "t", "a", "--name", "n", "--", "b"], ("f", "t", ["a", "b"], "n")),
        (["f", "--name", "n", "--", "--", "a"], ("f", None, ["--", "a"], "n")),
        (["f", "t", "a"], ("f", "t", ["a"], "")),
        (["f", "--"], ("f", None, [], "")),
    ],
)
def test_arguments_after_the_separator_go_to_the_program(typed: list[str], expected: tuple[object, ...]) -> None:
    said = CliRunner().invoke(app, typed)
    assert said.exit_code == 0, said.output
    assert said.output.strip() == repr(expected)


def test_file_is_required_before_the_separator() -> None:
    said = CliRunner().invoke(app, ["--", "f"])
    assert said.exit_code == 2
    assert "Missing argument" in said.output


FORGED = "bad\nfailing: everything\r\x1b[2J\x9b31m\u202eend"


def test_exception_cannot_add_lines_or_control_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    record = TopologyRecord(definition(), packing(), None, execution("/home"), None, None, ())
    report = ExceptionReport("count", "container_2_count_3", "ValueError", FORGED, f"Traceback\n{FORGED}", 7, 1.0, 2.0)
    containers = {2: ContainerStatus(2, "h", 1, tuple(all_processes(2)))}
    print_status(
        topology_status(record, ProcessReplies(None, containers, None, (report,)), 5000.0), 5000.0, verbose=True
    )
    printed = capsys.readouterr().out
    assert "bad\\nfailing: everything" in printed
    assert not any(line.startswith("failing: everything") for line in printed.splitlines())
    assert all(c.isprintable() or c == "\n" for c in printed)


def test_late_records_are_a_line_of_the_status(capsys: pytest.CaptureFixture[str]) -> None:
    record = TopologyRecord(definition(), packing(), None, execution("/home"), None, None, ())
    counts = {"sums": {"late-count": 2.0}, "counts": {"late-count": 10.0}}
    print_status(topology_status(record, ProcessReplies(None, {}, None, (), counts=counts), 5000.0), 5000.0)
    (line,) = [text for text in capsys.readouterr().out.splitlines() if text.startswith("late: ")]
    assert line.startswith("late: 12 records came after their windows had closed (counts 10, sums 2; ")


def test_json_has_no_control_characters_and_keeps_its_value(capsys: pytest.CaptureFixture[str]) -> None:
    value = {"message": FORGED + "\U000e0001 ü 漢 \U0001f600"}
    print_json(value)
    printed = capsys.readouterr().out
    assert all(c.isprintable() or c == "\n" for c in printed)
    assert "ü 漢" in printed
    assert json.loads(printed) == value


class Terminal(io.StringIO):
    """Terminal that records its output."""

    def isatty(self) -> bool:
        """Return True."""
        return True


@pytest.mark.parametrize("width", [20, 40, 80, 200])
def test_numbers_are_complete_on_a_narrow_terminal(monkeypatch: pytest.MonkeyPatch, width: int) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stdout", terminal)
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setenv("NO_COLOR", "1")
    numbers = [str(982_780_123_456 + n) for n in range(9)]
    print_table(["component", *"abcdefghi"], [["a-component-with-a-long-name", *numbers]], list("abcdefghi"))
    assert all(number in terminal.getvalue() for number in numbers)
