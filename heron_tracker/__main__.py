"""``python -m heron_tracker``: serves REST and the web page until it is asked to stop."""

from __future__ import annotations

import sys

import typer

from heron_control.web.serving import exit_code
from heron_tracker.command import tracker

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)
app.command()(tracker)


def main() -> None:
    """Entry point."""
    sys.exit(exit_code(app, "heron_tracker"))


if __name__ == "__main__":
    main()
