"""``python dying_stream.py WHERE:N …``: ``python -m data_pipeline …`` by micro-batches, whose driver is killed in
micro-batch N: when its tasks have ``staged``, when its commits are ``owed`` since its portion has its name, or when
they are ``settled`` and Spark does not know of it yet."""

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
    """If it is there."""
    if (where, str(number)) == (WHERE, NUMBER):
        os.kill(os.getpid(), signal.SIGKILL)


class Dying(OutputFolder):
    """That of a portion."""

    def commit(self, manifest: Mapping[str, Any]) -> None:
        die_at("staged", manifest["last"])
        super().commit(manifest)
        die_at("owed", manifest["last"])


def settled(place: Place) -> list[str]:
    """Behind that of a portion."""
    steps = settle(place)
    die_at("settled", place.url.rpartition("-")[2])
    return steps


if __name__ == "__main__":
    setattr(portions, "OutputFolder", Dying)  # noqa: B010  # names that it imports
    setattr(portions, "settle", settled)  # noqa: B010
    sys.exit(command.main(sys.argv[2:]))
