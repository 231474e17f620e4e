"""Which files of checkpoints nobody needs any more.

Kept are the newest complete checkpoints and whatever is newer than the last complete one in the generation that runs.
A part goes when a manifest that goes names it and none that stays does. A part that no manifest names was written for
a checkpoint that came to nothing, or for one that is on its way; only its generation tells, so it goes once a later one
runs. Whoever decides with older knowledge (a master that was deposed) keeps more, never less: what a later checkpoint
is made of is in the manifest of the one before it, or newer than that.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from heron_runtime.model.checkpoints import Manifest


class Old(NamedTuple):
    """Numbers of manifests, names of parts; manifests go first, so that none ever names what is not there."""

    manifests: tuple[int, ...]
    parts: tuple[str, ...]


def kept(manifests: Mapping[int, Manifest | None], complete: int, keep: int) -> set[int]:
    """The newest complete checkpoints. Of those of one turn only the newest can be complete: the others were written,
    and the store has not made them the last complete one, or they were struck off. So were those of later turns than
    the last complete one."""
    newest = {}
    last = manifests.get(complete)
    for number in sorted(number for number in manifests if number <= complete):
        found = manifests[number]
        if last is not None and found is not None and found.turn > last.turn:
            continue
        newest[("unread", number) if found is None else ("turn", found.turn)] = number
    return set(sorted(newest.values())[-keep:])


def old_files(
    manifests: Mapping[int, Manifest | None], parts: Iterable[str], complete: int, running: int, keep: int
) -> Old:
    """What may go, of these files. ``complete``: the last complete checkpoint; ``running``: the generation that runs.

    A manifest that cannot be read is None; while one of them stays no part goes, since it may name any of them.
    """
    gone = {number for number in manifests if number <= complete} - kept(manifests, complete, keep)
    gone |= {n for n, found in manifests.items() if n > complete and found is not None and found.generation < running}
    staying = [found for number, found in manifests.items() if number not in gone]
    if None in staying:
        return Old(tuple(sorted(gone)), ())
    needed = {name for found in staying if found is not None for name in found.files}
    named = {name for number in gone if (found := manifests[number]) is not None for name in found.files}
    return Old(
        tuple(sorted(gone)),
        tuple(name for name in parts if name not in needed and (name in named or generation_of(name) < running)),
    )


def generation_of(part: str) -> int:
    """Of a part's file, unfinished ones included (``.NAME.RANDOM.part``); the greatest where it is nobody's."""
    number = part.lstrip(".").partition("-")[0]
    return int(number) if number.isdecimal() else 1 << 62
