"""What the command shows: data on stdout, messages on stderr, colours and progress on a terminal only.

``rich`` honours NO_COLOR and TERM by itself. Text of users and of logs is never read as markup, and control characters
in it are made visible, so that a log line cannot move the cursor or change the window's title.
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

FOLDED_WIDTH = 10  # of a column of text at least, where a table is wider than the terminal
GAP_WIDTH = 3  # between two columns, at most
PIPE_WIDTH = 10_000  # a table that is piped is as wide as its content

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
    """How data is printed."""

    TABLE = "table"
    JSON = "json"


class _Settings:
    verbose = False


def set_verbose(verbose: bool) -> None:
    """Show tracebacks and what goes on."""
    _Settings.verbose = verbose


def is_verbose() -> bool:
    """True if --verbose was given."""
    return _Settings.verbose


def out() -> Console:
    """Where data goes."""
    piped = not sys.stdout.isatty()
    width = PIPE_WIDTH if piped else None
    return Console(file=sys.stdout, width=width, highlight=False, markup=False, emoji=False, soft_wrap=piped)


def err() -> Console:
    """Where messages go."""
    return Console(file=sys.stderr, highlight=False, markup=False, emoji=False, soft_wrap=True)


def visible(text: str) -> str:
    """``text`` with control characters (but newline and tab) as escapes."""
    return "".join(c if c.isprintable() or c in "\n\t" else c.encode("unicode_escape").decode() for c in text)


def indented(text: str) -> str:
    """Foreign text of several lines: none of them begins where ours do."""
    return "\n".join(f"  {line}" for line in visible(text.rstrip("\n")).split("\n"))


def say(text: str, style: str = "") -> None:
    """A message of one line."""
    err().print(Text(visible(text), style=style))


def note(text: str) -> None:
    """A message that only --verbose shows."""
    if is_verbose():
        say(text, "dim")


def print_json(value: Any) -> None:
    """Print data as JSON, with control and format characters as escapes."""
    text = json.dumps(value, indent=2, ensure_ascii=False)
    sys.stdout.write("".join(c if c.isprintable() or c == "\n" else json.dumps(c)[1:-1] for c in text) + "\n")


def print_line(text: str = "", style: str = "") -> None:
    """A line of data."""
    out().print(Text(visible(text), style=style))


def age(seconds: float) -> str:
    """A duration for people: 5 s, 3 min, 2 h, 4 d."""
    seconds = max(seconds, 0.0)
    for size, unit in ((86_400, "d"), (3600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"


def size(count: int) -> str:
    """Bytes for people: 12 KiB."""
    for exponent, unit in ((30, "GiB"), (20, "MiB"), (10, "KiB")):
        if count >= 1 << exponent:
            return f"{count / (1 << exponent):.1f} {unit}"
    return f"{count} B"


def state_text(state: str) -> Text:
    """The name of a state in its colour."""
    return Text(state, style=STATE_STYLES.get(state, ""))


def print_table(columns: Sequence[str], rows: Iterable[Sequence[object]], numbers: Sequence[str] = ()) -> None:
    """Print data as a table. Columns named in ``numbers`` are aligned to the right and never cut: where the terminal is
    too narrow, lines are longer than it. None is left empty."""
    table = Table(box=box.SIMPLE_HEAD if sys.stdout.isatty() else None, pad_edge=False, header_style="bold")
    for name in columns:
        table.add_column(name, justify="right" if name in numbers else "left", overflow="fold", no_wrap=name in numbers)
    widths = [len(name) for name in columns]
    for row in rows:
        cells = [cell if isinstance(cell, Text) else Text("" if cell is None else visible(str(cell))) for cell in row]
        for number, cell in enumerate(cells[: len(widths)]):
            widths[number] = max(widths[number], cell.cell_len)
        table.add_row(*cells)
    console = out()
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
    """Show that something goes on, and what: beside a spinner on a terminal, a single line elsewhere."""
    console = err()
    if not console.is_terminal:
        say(text)
        yield silent
        return
    with console.status(Text(text)) as status:
        yield lambda text: status.update(Text(visible(text)))


def show_error(error: Failure) -> None:
    """The error in words, on stderr."""
    console = err()
    for detail in error.details:
        console.print(Text(indented(detail), style="dim" if console.is_terminal else ""))
    first, *more = visible(error.message).split("\n")
    lines = [first, *(line if line.startswith("  ") else f"  {line}" for line in more)]
    console.print(Text.assemble(("heron: ", "bold red"), "\n".join(lines)))
    if error.cure:
        console.print(Text(visible(error.cure)))
