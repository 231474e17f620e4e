"""Interface of the sub-process ``heron_control.packaging.define``: name, answer and exit codes.

It imports little: the command starts the process before it imports other modules, and the process imports it as well.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

MODULE = "heron_control.packaging.define"
NEEDS = ("argparse", "heron_control.packaging.topology_lookup", "heron_runtime.files", "heronry.api.validate")
OK, RAISED, NOT_FOUND, INVALID = 0, 1, 3, 7


def warm_up() -> None:
    """Start the sub-process that the next ``define_topology`` needs."""
    from heron_runtime import spawn

    spawn.warm_up(MODULE, NEEDS)


@dataclass(frozen=True, slots=True)
class TopologyTraits:
    """Properties of a topology's classes that are not part of its definition.

    ``hearing``: spouts with those of ``ack`` and ``fail`` that they define, or ``tup_id`` if they only emit ids.
    ``ends``: bolts without readers that are not two-phase sinks, with their ``output_effect``. ``missing``: inputs of a
    program that do not exist on this machine. ``drops_late``: steps of a program whose late records no step reads.
    """

    hearing: dict[str, list[str]] = field(default_factory=dict)
    ends: dict[str, str] = field(default_factory=dict)
    missing: list[str] = field(default_factory=list)
    drops_late: list[str] = field(default_factory=list)


def traits_file(output: Path) -> Path:
    """Return the path of the file for the traits, in the folder of the answer."""
    return output.with_name(f"{output.name}.said")
