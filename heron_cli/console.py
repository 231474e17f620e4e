"""Output of the commands: data on stdout, messages on stderr, colors and progress on a terminal only.

``rich`` honors NO_COLOR and TERM. Text of users and logs is never parsed as markup, and its control characters are
escaped, so that a log line cannot move the cursor or change the title of the window.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from enum import StrEnum
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from heron_control.progress import Progress, silent
from heron_runtime.failures import Failure

FOLDED_WIDTH = 10  # least width of a text column in a table that is wider than the terminal
GAP_WIDTH = 3  # largest gap between two columns
PIPE_WIDTH = 10_000  # a piped table is as wide as its content

STATE_STYLES = {
    "running": "green",
    "paused": "cyan",
    "finished": "green",
    "starting": "yellow",
    "waiting": "yellow",
    "restarting": "yellow",
    "stopped": "yellow",
    "degraded": "yellow",
    "restoring": "yellow",
    "failing": "bold red",
    "dead": "bold red",
    "killed": "dim",
}


class Format(StrEnum):
    """Format of data on stdout."""

    TABLE = "table"
    JSON = "json"


class _Settings:
    verbose = False


def set_verbose(verbose: bool) -> None:
    """Set whether to print details and tracebacks."""
    _Settings.verbose = verbose


def is_verbose() -> bool:
    """Return whether ``--verbose`` was given."""
    return _Settings.verbose


def stdout_console() -> Console:
    """Return the console for data."""
    piped = not sys.stdout.isatty()
    width = PIPE_WIDTH if piped else None
    return Console(file=sys.stdout, width=width, highlight=False, markup=False, emoji=False, soft_wrap=piped)


def stderr_console() -> Console:
    """Return the console for messages."""
    return Console(file=sys.stderr, highlight=False, markup=False, emoji=False, soft_wrap=True)


def escape_control_characters(text: str) -> str:
    """Return `text` with control characters escaped, except newline and tab."""
    return "".join(c if c.isprintable() or c in "\n\t" else c.encode("unicode_escape").decode() for c in text)


def indent_foreign_text(text: str) -> str:
    """Return escaped text of users or logs, indented so that its lines cannot pass for messages."""
    return "\n".join(f"  {line}" for line in escape_control_characters(text.rstrip("\n")).split("\n"))


def print_message(text: str, style: str = "") -> None:
    """Print a message on stderr."""
    stderr_console().print(Text(escape_control_characters(text), style=style))


def print_detail(text: str) -> None:
    """Print a message on stderr if ``--verbose`` was given."""
    if is_verbose():
        print_message(text, "dim")


def print_json(value: Any) -> None:
    """Print data as JSON with control characters escaped."""
    text = json.dumps(value, indent=2, ensure_ascii=False)
    sys.stdout.write("".join(c if c.isprintable() or c == "\n" else json.dumps(c)[1:-1] for c in text) + "\n")


def print_line(text: str = "", style: str = "") -> None:
    """Print a line of data."""
    stdout_console().print(Text(escape_control_characters(text), style=style))


def format_age(seconds: float) -> str:
    """Format a duration: 5 s, 3 min, 2 h or 4 d."""
    seconds = max(seconds, 0.0)
    for size, unit in ((86_400, "d"), (3600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"


def format_bytes(count: int) -> str:
    """Format a number of bytes: 12.0 KiB."""
    for exponent, unit in ((30, "GiB"), (20, "MiB"), (10, "KiB")):
        if count >= 1 << exponent:
            return f"{count / (1 << exponent):.1f} {unit}"
    return f"{count} B"


def state_text(state: str) -> Text:
    """Return the name of a state in its color."""
    return Text(state, style=STATE_STYLES.get(state, ""))


def print_table(columns: Sequence[str], rows: Iterable[Sequence[object]], numbers: Sequence[str] = ()) -> None:
    """Print data as a table.

    Args:
        columns: Names of the columns.
        rows: Cells of each row. None is an empty cell.
        numbers: Columns that are aligned right and never folded, even if the lines become wider than the terminal.
    """
    table = Table(box=box.SIMPLE_HEAD if sys.stdout.isatty() else None, pad_edge=False, header_style="bold")
    for name in columns:
        table.add_column(name, justify="right" if name in numbers else "left", overflow="fold", no_wrap=name in numbers)
    widths = [len(name) for name in columns]
    for row in rows:
        cells = [
            cell if isinstance(cell, Text) else Text("" if cell is None else escape_control_characters(str(cell)))
            for cell in row
        ]
        for number, cell in enumerate(cells[: len(widths)]):
            widths[number] = max(widths[number], cell.cell_len)
        table.add_row(*cells)
    console = stdout_console()
    if sys.stdout.isatty():
        needed = (
            width if name in numbers else min(width, FOLDED_WIDTH) for name, width in zip(columns, widths, strict=True)
        )
        table.width = least if (least := sum(needed) + GAP_WIDTH * len(columns)) > console.width else None
        console.print(table, crop=False)
        return
    with console.capture() as captured:
        console.print(table)
    sys.stdout.write("".join(line.rstrip() + "\n" for line in captured.get().splitlines()))


@contextmanager
def spinner(text: str) -> Iterator[Progress]:
    """Show the current step beside a spinner on a terminal, or print `text` elsewhere."""
    console = stderr_console()
    if not console.is_terminal:
        print_message(text)
        yield silent
        return
    with console.status(Text(text)) as status:
        yield lambda text: status.update(Text(escape_control_characters(text)))


def show_error(error: Failure) -> None:
    """Print an error with its details and remedy on stderr."""
    console = stderr_console()
    for detail in error.details:
        console.print(Text(indent_foreign_text(detail), style="dim" if console.is_terminal else ""))
    first, *more = escape_control_characters(error.message).split("\n")
    lines = [first, *(line if line.startswith("  ") else f"  {line}" for line in more)]
    console.print(Text.assemble(("heron: ", "bold red"), "\n".join(lines)))
    if error.cure:
        console.print(Text(escape_control_characters(error.cure)))
