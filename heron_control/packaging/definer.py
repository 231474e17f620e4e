"""The sub-process ``heron_control.packaging.define`` as ``load`` knows it: its name, what it says, its exit codes.

It imports little: the command starts the process before it imports anything else, and the process imports it, too.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

MODULE = "heron_control.packaging.define"
NEEDS = ("argparse", "heron_control.packaging.find", "heron_runtime.files", "heronry.api.validate")
OK, RAISED, NOT_FOUND, INVALID = 0, 1, 3, 7


def warm_up() -> None:
    """Start the sub-process that the next ``define_topology`` will need."""
    from heron_runtime import spawn

    spawn.warm_up(MODULE, NEEDS)


@dataclass(frozen=True, slots=True)
class Said:
    """What classes say that a definition does not.

    ``hearing``: spouts and which of ``ack`` and ``fail`` they define, or ``tup_id`` where they only give ids;
    ``ends``: bolts that nobody reads and that are no two-phase sinks, with their ``output_effect``; ``missing``: what a
    program is to read and is not on this machine.
    """

    hearing: dict[str, list[str]] = field(default_factory=dict)
    ends: dict[str, str] = field(default_factory=dict)
    missing: list[str] = field(default_factory=list)


def said_file(output: Path) -> Path:
    """Beside the answer: what classes say."""
    return output.with_name(f"{output.name}.said")
