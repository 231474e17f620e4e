"""``python -m data_pipeline …`` by micro-batches with a driver death: ``python dying_stream.py WHERE:N …``.

The driver is killed in micro-batch N: when its tasks have ``staged``, when its commits are ``owed`` because its portion
has its final name, or when they are ``settled`` and Spark does not know yet.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Mapping
from typing import Any

from data_pipeline import __main__ as command
from data_pipeline.shell import portions
from data_pipeline.shell.output import OutputFolder, Place
from data_pipeline.shell.staged import settle

WHERE, _, NUMBER = sys.argv[1].partition(":")


def die_at(where: str, number: object) -> None:
    """Kill the process if it has reached the chosen point."""
    if (where, str(number)) == (WHERE, NUMBER):
        os.kill(os.getpid(), signal.SIGKILL)


class Dying(OutputFolder):
    """Output folder of a portion, with the death points ``staged`` and ``owed``."""

    def commit(self, manifest: Mapping[str, Any]) -> None:
        die_at("staged", manifest["last"])
        super().commit(manifest)
        die_at("owed", manifest["last"])


def settled(place: Place) -> list[str]:
    """Settle the commits of a portion, with the death point ``settled`` after it."""
    steps = settle(place)
    die_at("settled", place.url.rpartition("-")[2])
    return steps


if __name__ == "__main__":
    setattr(portions, "OutputFolder", Dying)  # noqa: B010  # names that it imports
    setattr(portions, "settle", settled)  # noqa: B010
    sys.exit(command.main(sys.argv[2:]))
