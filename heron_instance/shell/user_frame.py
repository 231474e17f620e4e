"""Where user code is, from the stack of the executor's thread."""

from __future__ import annotations

import os
import sys
import threading
from pathlib import Path
from types import FrameType

OURS = Path(__file__).resolve().parent.parent.parent  # the folder of all rooms
ROOMS = tuple(f"{OURS / room}{os.sep}" for room in ("heron_instance", "heron_container", "heron_runtime", "heronry"))


def place_of_main_thread(folder: Path) -> str:
    """Function, file and line where the main thread is in user code, which lies in ``folder``."""
    return place_of(sys._current_frames().get(threading.main_thread().ident or 0), folder)


def place_of(frame: FrameType | None, folder: Path) -> str:
    """Function, file and line of the innermost frame of user code: one that lies in ``folder``, else any that is not
    ours. ``""`` if there is none."""
    prefix, fallback = f"{folder}{os.sep}", ""
    while frame is not None:
        code = frame.f_code
        name = f"{code.co_qualname}, {os.path.basename(code.co_filename)}:{frame.f_lineno}"
        if code.co_filename.startswith(prefix):
            return name
        if not fallback and not code.co_filename.startswith((*ROOMS, "<")):
            fallback = name
        frame = frame.f_back
    return fallback
