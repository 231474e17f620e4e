"""The sub-process ``heron_control.packaging.define`` as ``load`` knows it: its name, environment and exit codes.

It imports little, so that the process can be started before anything else of a command.
"""

from __future__ import annotations

from pathlib import Path

from heron_runtime import commands

MODULE = "heron_control.packaging.define"
NEEDS = ("heron_control.packaging.find", "heronry", "heronry.api.validate", "heron_runtime.wire.codec")
ENVIRONMENT = {"PYTHONDONTWRITEBYTECODE": "1"}  # no compiled files beside the user's
OK, RAISED, NOT_FOUND, INVALID = 0, 1, 3, 7


def warm_up() -> None:
    """Start the sub-process that the next ``define_topology`` will need."""
    commands.warm_up(MODULE, NEEDS, ENVIRONMENT)


def hears_file(output: Path) -> Path:
    """Beside the answer: which spouts have an ``ack`` or ``fail`` of their own."""
    return output.with_name(f"{output.name}.hears")
