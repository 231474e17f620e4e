"""Whether the files of a checkpoint are whole, and copies of them. No value in them is decoded.

Who copies a checkpoint of a topology that runs races with its master, which removes what nobody needs any more. So all
files are linked first, which takes an instant, and copied from the links.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass

from heron_runtime.checkpoint_files import CheckpointFolder
from heron_runtime.failures import Failure
from heron_runtime.model.checkpoints import Manifest, StatePart
from heron_runtime.wire.checkpoint_formats import TASK_STATE, DamagedPart, checked_pieces, read_blocks, whose

HELD = ".held"  # the links, beside the folders of a copy


class DamagedCheckpoint(Failure):
    """Files of a checkpoint are missing, or not what was written."""


@dataclass(frozen=True, slots=True)
class Contents:
    """The names of parts that have a block of the task's own state, and of those that have blocks of key groups."""

    own: frozenset[str]
    keyed: frozenset[str]


def damaged_parts(folder: CheckpointFolder, manifest: Manifest) -> list[str]:
    """What is wrong with the files it needs, each in one line; empty if they are whole."""
    return [fault for part in needed(manifest) if (fault := _fault(folder, part))]


def needed(manifest: Manifest) -> list[StatePart]:
    """The parts whose files it needs, in order of names."""
    found = {part.name: part for parts in (manifest.parts, *manifest.layers.values()) for part in parts}
    return [found[name] for name in sorted(found)]


def size_of(parts: Iterable[StatePart]) -> int:
    """Return the bytes of these files together."""
    return sum(part.size for part in parts)


def contents(folder: CheckpointFolder, manifest: Manifest) -> Contents:
    """What its files hold, by their heads. Raises DamagedCheckpoint, which names the first that cannot be read."""
    own, keyed = set(), set()
    for part in needed(manifest):
        try:
            with folder.open_part(part.name) as read:
                groups = {block.group for block in read_blocks(part, read)}
        except (DamagedPart, OSError) as error:
            raise _damaged(part, error) from None
        if TASK_STATE in groups:
            own.add(part.name)
        if groups - {TASK_STATE}:
            keyed.add(part.name)
    return Contents(frozenset(own), frozenset(keyed))


def copy_checkpoint(
    source: CheckpointFolder, target: CheckpointFolder, manifest: Manifest, files: Mapping[str, StatePart], mode: int
) -> None:
    """Copy these files, each with the name it has in ``target``, checking every byte; the manifest for ``target`` comes
    last. Raises DamagedCheckpoint, which names the file, and OSError of the target."""
    held = CheckpointFolder(target.folder / HELD)
    try:
        _link(source, held, files.values())
        for name, part in files.items():
            folder = held if held.part_file(part.name).exists() else source
            try:
                target.write_part(name, _pieces(folder, part), mode)
            except (DamagedPart, _CannotRead) as error:
                raise _damaged(part, error) from None
        target.write_manifest(manifest, mode)
    finally:
        shutil.rmtree(held.folder, ignore_errors=True)


def _link(source: CheckpointFolder, held: CheckpointFolder, parts: Iterable[StatePart]) -> None:
    """Hold these files fast, where they can be linked: else they are copied as they are found."""
    held.part_file("").mkdir(mode=0o700, parents=True, exist_ok=True)
    with suppress(OSError):  # another disk, files of another user; what is missing is told by who reads it
        for part in parts:
            os.link(source.part_file(part.name), held.part_file(part.name))


class _CannotRead(Exception):
    """What is to be copied cannot be read."""


def _pieces(folder: CheckpointFolder, part: StatePart) -> Iterable[bytes]:
    try:
        with folder.open_part(part.name) as read:
            yield from checked_pieces(part, read)
    except OSError as error:
        raise _CannotRead(f"{whose(part)} cannot be read: {error.strerror}") from error


def _damaged(part: StatePart, error: Exception) -> DamagedCheckpoint:
    why = str(error)
    if isinstance(error, OSError):
        why = f"{whose(part)} cannot be read: {error.strerror}"
    return DamagedCheckpoint(f"checkpoint {part.checkpoint} cannot be read: {why}", "Take another one, or a copy.")


def _fault(folder: CheckpointFolder, part: StatePart) -> str:
    try:
        with folder.open_part(part.name) as read:
            for _ in checked_pieces(part, read):
                pass
    except DamagedPart as error:
        return str(error)
    except OSError as error:
        return f"{whose(part)} cannot be read: {error.strerror}"
    return ""
