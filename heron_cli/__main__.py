"""The program ``heron``, also as ``python -m heron_cli``.

Garbage collection is off while the command is imported, and the imported objects are frozen afterwards, since all of
them live until the process ends (``heron_cli.application.main``). ``heron submit`` starts the processes that it will
need before that import: they import on another core meanwhile, and end with the command if it does not use them.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Sequence

from heron_control.packaging import definer
from heron_runtime.spawn import warm_up

SUBMIT, LOCAL, SLURM = "submit", "local", "slurm"  # as in heron_cli.clusters, which would import more
SCHEDULER_MODULES = ("heron_scheduler.process", "heron_runtime.state.files")
READ_ONLY_OPTIONS = frozenset({"--help", "-h", "--dry-run"})


def main() -> None:
    """Run the command line of this process and exit with its exit code."""
    gc.disable()
    warm_up_processes(sys.argv[1:])
    from heron_cli.application import main as command  # takes a while; the warm processes import meanwhile

    command()


def warm_up_processes(arguments: Sequence[str]) -> None:
    """Start the processes that this command line will probably need."""
    clusters = {word.partition("/")[0] for word in arguments}
    if list(arguments[:1]) != [SUBMIT] or clusters.isdisjoint((LOCAL, SLURM)):
        return
    definer.warm_up()
    if LOCAL in clusters and READ_ONLY_OPTIONS.isdisjoint(arguments):
        warm_up("heron_scheduler", SCHEDULER_MODULES)


if __name__ == "__main__":
    main()
