"""``heron tracker``: the tracker in the foreground, with the home folder of the user prepared."""

from __future__ import annotations

import functools
from typing import Any

from heron_cli.console import set_verbose
from heron_cli.home import Home
from heron_tracker import command


@functools.wraps(command.tracker)
def tracker(**options: Any) -> None:
    """Prepare the home folder, and run ``heron_tracker.command.tracker``."""
    set_verbose(options["verbose"])
    if not options["cluster"] and options["home"] is None:
        Home.of_user().prepare()
    command.tracker(**options)
