"""Arguments after ``--``, which belong to the user's program."""

from __future__ import annotations

from typing import Annotated

import pytest
import typer
from typer.testing import CliRunner

from heron_cli.application import PassThroughCommand

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
