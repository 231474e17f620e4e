"""What ``heron submit`` can begin before the command itself is imported: the processes that it will need.

They import while the command does, on another core, and end with it if nobody wants them. A wrong guess costs that.
"""

from __future__ import annotations

from collections.abc import Sequence

from heron_control.packaging import definer
from heron_runtime.spawn import warm_up

SUBMIT, LOCAL, SLURM = "submit", "local", "slurm"
SCHEDULER_NEEDS = ("heron_scheduler.process", "heron_runtime.state.files")
CHANGE_NOTHING = frozenset({"--help", "-h", "--dry-run"})


def begin(arguments: Sequence[str]) -> None:
    """Start what this command line will need, as far as a glance can tell."""
    places = {word.partition("/")[0] for word in arguments}
    if list(arguments[:1]) != [SUBMIT] or places.isdisjoint((LOCAL, SLURM)):
        return
    definer.warm_up()
    if LOCAL in places and CHANGE_NOTHING.isdisjoint(arguments):
        warm_up("heron_scheduler", SCHEDULER_NEEDS)
