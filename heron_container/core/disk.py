"""Whether the disks that a container writes on have room: what its status says of them, with the cure.

Logs, metrics and checkpoints go on when a disk is full (each drops or declines what it could not write), so nothing
dies of it and nothing else would say so. A file system that counts no bytes or files of its own reports zero of all:
such a zero says nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

LEAST_FREE_BYTES = 4 << 20  # what a store's log, or a part of a checkpoint, may need at once


@dataclass(frozen=True, slots=True)
class Space:
    """What is left where ``folder`` is, for processes without privileges, and of how much."""

    folder: str
    free_bytes: int
    bytes: int
    free_files: int
    files: int


def disk_trouble(spaces: Iterable[Space]) -> str:
    """Empty if each of them has room; otherwise the first that has none, what that costs, and the cure."""
    for space in spaces:
        if space.bytes and space.free_bytes < LEAST_FREE_BYTES:
            left = f"{space.free_bytes >> 10} KiB are left"
        elif space.files and not space.free_files:
            left = f"it has room for no more files, of {space.files}"
        else:
            continue
        return (
            f"the disk of {space.folder} is full: {left}. Logs and metrics lose lines, and no checkpoint completes, "
            "until there is room: free some space there"
        )
    return ""
