"""Looks at the disks that a container writes on."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from heron_container.core.disk import Space


def spaces_of(folders: Iterable[Path]) -> Iterator[Space]:
    """What is left where each of ``folders`` is; one that cannot be asked is passed over."""
    for folder in folders:
        try:
            found = os.statvfs(folder)
        except OSError:
            continue
        unit = found.f_frsize
        yield Space(str(folder), found.f_bavail * unit, found.f_blocks * unit, found.f_favail, found.f_files)
