"""``heron tracker``: REST over everything that runs, and the web page, in the foreground."""

from __future__ import annotations

import functools
from typing import Any

from heron_cli.console import set_verbose
from heron_cli.home import Home
from heron_tracker import command


@functools.wraps(command.tracker)
def tracker(**options: Any) -> None:
    """The same, with the user's home made ready."""
    set_verbose(options["verbose"])
    if not options["cluster"] and options["home"] is None:
        Home.of_user().prepare()
    command.tracker(**options)
