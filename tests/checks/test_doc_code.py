"""Code in the documentation compiles, examples run, and command lines use commands and options that exist."""

from __future__ import annotations

import ast
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer.main

from heron_cli.application import make_app

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
RUNNING = [  # pages whose Python blocks stand alone
    *sorted((ROOT / "docs" / "tutorials").glob("*.md")),
    *(
        ROOT / "docs" / name
        for name in (
            "reference/faq.md",
            "how-to/test-component.md",
            "how-to/packages.md",
            "how-to/logging.md",
            "how-to/troubleshooting.md",
            "how-to/migrate-from-storm.md",
            "how-to/kafka-to-postgres.md",
            "how-to/custom-grouping.md",
            "how-to/migrate-from-heron.md",
            "how-to/migrate-from-flink.md",
            "how-to/migrate-from-bytewax.md",
            "how-to/migrate-from-spark.md",
            "how-to/tick-tuples.md",
            "how-to/own-metrics.md",
            "how-to/task-hooks.md",
            "how-to/batch-bolt.md",
            "how-to/dead-letters.md",
            "how-to/upgrade-code.md",
            "how-to/backfill-on-spark.md",
        )
    ),
    ROOT / "README.md",
]
COMMAND = typer.main.get_command(make_app())


def blocks(page: Path, *languages: str) -> Iterator[str]:
    for language, text in re.findall(r"^```(\w+)[^\n]*\n(.*?)^```$", page.read_text(), re.DOTALL | re.MULTILINE):
        if language in languages:
            yield text


def command_lines(page: Path) -> Iterator[str]:
    """Yield each ``heron ...`` of the shell blocks, without comments and without later commands of a pipe."""
    for text in blocks(page, "sh", "console"):
        for line in re.sub(r"\\\n\s*", " ", text).splitlines():
            found = re.match(r"(?:\$ )?(?:\.venv/bin/)?(heron .*)", line)
            if found:
                yield found[1]


def mistake(line: str) -> str:
    """Return the error in a command line (unknown command or option), or an empty string."""
    words = shlex.split(re.split(r" [|&;>]", line)[0], comments=True)[1:]
    command: Any = COMMAND
    while hasattr(command, "commands"):
        if not words or words[0].startswith("-"):
            return ""
        if words[0] not in command.commands:
            return f"unknown command {words[0]!r}"
        command = command.commands[words.pop(0)]
    known = {name for parameter in command.params for name in (*parameter.opts, *parameter.secondary_opts)}
    known |= {"--help", "-h"}
    ours = words[: words.index("--")] if "--" in words else words
    unknown = [word for word in ours if re.match(r"--?[a-z]", word) and word.partition("=")[0] not in known]
    return f"unknown option {unknown[0]!r}" if unknown else ""


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_python_blocks_compile(page: Path) -> None:
    for text in blocks(page, "python"):
        ast.parse(text.replace("…", "..."))


@pytest.mark.parametrize("page", RUNNING, ids=lambda page: str(page.relative_to(ROOT)))
def test_python_blocks_of_tutorials_run(page: Path) -> None:
    for text in blocks(page, "python"):
        exec(compile(text, str(page), "exec", dont_inherit=True), {"__name__": "documentation"})


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_command_lines_use_known_commands_and_options(page: Path) -> None:
    wrong = {f"{line}: {problem}" for line in command_lines(page) if (problem := mistake(line))}
    assert sorted(wrong) == []


def test_mistakes_in_command_lines_are_detected() -> None:
    assert mistake("heron submitt local x.py") == "unknown command 'submitt'"
    assert mistake("heron update local X --parallelism a:4") == "unknown option '--parallelism'"
    assert mistake("heron submit local x.py X -- --anything") == ""
