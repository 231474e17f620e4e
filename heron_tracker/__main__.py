"""Entry point of ``python -m heron_tracker``: serve REST and the web page until a signal arrives."""

from __future__ import annotations

import sys

import typer

from heron_control.web.serving import exit_code
from heron_tracker.command import tracker

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)
app.command()(tracker)


def main() -> None:
    """Run the tracker and exit with its code."""
    sys.exit(exit_code(app, "heron_tracker"))


if __name__ == "__main__":
    main()
