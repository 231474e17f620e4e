"""Find the leading topology master in the masters' logs, for clusters whose state store tests cannot reach."""

from __future__ import annotations

import re
from collections.abc import Callable

from heron_runtime.model.ids import FIRST_STANDBY, MASTER_CONTAINER

MASTERS = (MASTER_CONTAINER, FIRST_STANDBY)


def leader(log: Callable[[str], str]) -> tuple[int, int] | None:
    """Return epoch and container of the leader, or None. ``log`` returns a process's log, "" if it has none."""
    found: list[tuple[int, int]] = []
    for number in MASTERS:
        said = re.findall(r"(leading with|stepping down from) epoch (\d+)", log(f"topology_master-{number}"))
        if said and said[-1][0] == "leading with":
            found.append((int(said[-1][1]), number))
    return max(found, default=None)
