"""The sub-process ``heron_control.packaging.define`` as ``load`` knows it: its name, environment and exit codes.

It imports little, so that the process can be started before anything else of a command.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from heron_runtime import commands

MODULE = "heron_control.packaging.define"
NEEDS = ("heron_control.packaging.find", "heronry", "heronry.api.validate", "heron_runtime.wire.stored_codec")
ENVIRONMENT = {"PYTHONDONTWRITEBYTECODE": "1"}  # no compiled files beside the user's
OK, RAISED, NOT_FOUND, INVALID = 0, 1, 3, 7


def warm_up() -> None:
    """Start the sub-process that the next ``define_topology`` will need."""
    commands.warm_up(MODULE, NEEDS, ENVIRONMENT)


@dataclass(frozen=True, slots=True)
class Said:
    """What classes say that a definition does not. ``hearing``: spouts and which of ``ack`` and ``fail`` they define;
    ``ends``: bolts that nobody reads and that are no two-phase sinks, with their ``output_effect``."""

    hearing: dict[str, list[str]] = field(default_factory=dict)
    ends: dict[str, str] = field(default_factory=dict)


def said_file(output: Path) -> Path:
    """Beside the answer: what classes say."""
    return output.with_name(f"{output.name}.said")
