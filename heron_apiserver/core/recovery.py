"""What to do at the start with what an earlier life of the api server left in its home: a pure decision.

The state store decides: a folder whose submission stands there is finished (it takes its place, the scheduler is told
to start it, which is harmless if it runs), any other is the rest of a submit that did not come through, or of a kill
that was interrupted, and goes.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import StrEnum


class RecoveryStep(StrEnum):
    """What to do with a folder."""

    FINISH_SUBMIT = "finish submit"  # staged, and the store has it
    START = "start"  # in its place, and the store has it
    FINISH_KILL = "finish kill"  # in its place, and the store has it no more
    DISCARD = "discard"  # staged, and the store never had it
    LEAVE = "leave"  # logs that were kept; or the store has something of this name that cannot be read


@dataclass(frozen=True, slots=True)
class Folder:
    """A topology's folder in the home. ``topology_id`` is "" where there is no launch file that can be read."""

    path: str
    topology: str
    topology_id: str
    staged: bool
    package: str = ""


def decide(
    folders: Collection[Folder], stored: Mapping[str, str], unreadable: Collection[str] = ()
) -> list[tuple[Folder, RecoveryStep]]:
    """One step for each folder. ``stored``: topology to the id of the submission that stands in the store.

    ``unreadable`` are topologies of which the store has something that cannot be read: nothing of theirs is touched.
    """
    steps = []
    for folder in sorted(folders, key=lambda f: (not f.staged, f.path)):
        lives = bool(folder.topology_id) and stored.get(folder.topology) == folder.topology_id
        if folder.topology in unreadable:
            step = RecoveryStep.LEAVE
        elif folder.staged:
            step = RecoveryStep.FINISH_SUBMIT if lives else RecoveryStep.DISCARD
        elif not folder.topology_id:
            step = RecoveryStep.LEAVE
        else:
            step = RecoveryStep.START if lives else RecoveryStep.FINISH_KILL
        steps.append((folder, step))
    return steps


def unused(packages: Collection[str], folders: Collection[Folder], held: Collection[str] = ()) -> list[str]:
    """The digests that no folder refers to and no request holds, sorted."""
    used = {folder.package for folder in folders} | set(held)
    return sorted(set(packages) - used)
