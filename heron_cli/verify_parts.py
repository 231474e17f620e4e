"""Whether the files of a checkpoint are whole: the checksums of their heads and blocks. No value in them is decoded."""

from __future__ import annotations

from typing import Any

from heron_instance.core.state.part_file import Damaged, read_part
from heron_runtime.checkpoint_files import CheckpointFolder
from heron_runtime.model.checkpoints import ALL_GROUPS, Manifest, Part


class _Undecoded:
    """In place of a codec: what a block holds may be anything of the user's, and is not looked at."""

    def decode(self, number: int, data: bytes) -> list[Any]:
        """Nothing."""
        return []


def damaged_parts(folder: CheckpointFolder, manifest: Manifest) -> list[str]:
    """What is wrong with the files it needs, each in one line; empty if they are whole."""
    needed = {part.name: part for parts in (manifest.parts, *manifest.layers.values()) for part in parts}
    return [fault for name in sorted(needed) if (fault := _fault(folder, needed[name]))]


def _fault(folder: CheckpointFolder, part: Part) -> str:
    codec: Any = _Undecoded()
    try:
        with folder.open_part(part.name) as read:
            for _ in read_part(part, read, ALL_GROUPS, codec):
                pass
            if read(part.size, 1):
                return f"{part.name} of checkpoint {part.checkpoint} ({part.component}, task {part.task}) is too long"
    except Damaged as error:
        return str(error)
    except OSError as error:
        where = f"{part.name} of checkpoint {part.checkpoint} ({part.component}, task {part.task})"
        return f"{where} cannot be read: {error.strerror}"
    return ""
