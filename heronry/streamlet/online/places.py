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


def replace_file(path: Path, data: bytes) -> None:
    """A reader sees the old content or the new, never a part."""
    temporary = path.with_name(f".{path.name}.part")
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary.write_bytes(data)
    os.replace(temporary, path)
