"""Where tasks keep what must outlive them: offsets, the state of reducers, collected records."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

STATE = "user.streamlet.state"  # a folder of the user's choice, which also survives `heron kill`


def state_folder(config: Mapping[str, Any]) -> Path:
    """The folder the user names, else ``streamlet`` in the topology's own (an instance's working folder)."""
    return Path(config.get(STATE) or Path.cwd() / "streamlet")


def append_whole(file: int, data: bytes, path: Path) -> None:
    """All of the data at the end of an open file, or nothing of it. Raises OSError, naming the path."""
    begin = os.lseek(file, 0, os.SEEK_END)
    done = 0
    try:
        while done < len(data):
            done += os.write(file, memoryview(data)[done:])
    except OSError as error:
        os.ftruncate(file, begin)
        os.lseek(file, begin, os.SEEK_SET)
        raise OSError(error.errno, error.strerror, str(path)) from error
