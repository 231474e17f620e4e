"""Verification and copies of a checkpoint's files. Values in them are not decoded.

The master of a running topology removes files that it does not need any more. So all files of a checkpoint are
hard-linked first, which takes an instant, and copied from the links.
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

HELD = ".held"  # folder of the links, next to the folders of a copy


class DamagedCheckpoint(Failure):
    """Raised if files of a checkpoint are missing or altered."""


@dataclass(frozen=True, slots=True)
class Contents:
    """Names of the parts with a task's own state, and of those with key groups."""

    own: frozenset[str]
    keyed: frozenset[str]


def damaged_parts(folder: CheckpointFolder, manifest: Manifest) -> list[str]:
    """Return one line for each damaged or missing file that the checkpoint needs."""
    return [fault for part in needed(manifest) if (fault := _fault(folder, part))]


def needed(manifest: Manifest) -> list[StatePart]:
    """Return the parts whose files the checkpoint needs, in order of names."""
    parts_by_name = {part.name: part for parts in (manifest.parts, *manifest.layers.values()) for part in parts}
    return [parts_by_name[name] for name in sorted(parts_by_name)]


def size_of(parts: Iterable[StatePart]) -> int:
    """Return the total bytes of these files."""
    return sum(part.size for part in parts)


def contents(folder: CheckpointFolder, manifest: Manifest) -> Contents:
    """Return what the files hold, according to their heads.

    Raises:
        DamagedCheckpoint: A file, named in the message, cannot be read.
    """
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
    """Copy these files to their names in ``target``, verifying every byte; the manifest is written last.

    Raises:
        DamagedCheckpoint: A file, named in the message, is damaged.
        OSError: The target cannot be written.
    """
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
    """Hold these files by links where possible; otherwise they are copied directly."""
    held.part_file("").mkdir(mode=0o700, parents=True, exist_ok=True)
    with suppress(OSError):  # another disk, or files of another user; a missing file is reported when it is read
        for part in parts:
            os.link(source.part_file(part.name), held.part_file(part.name))


class _CannotRead(Exception):
    """Raised if a source file cannot be read."""


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
