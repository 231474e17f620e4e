"""The user's own modules, compiled once for all instances of a container.

Instances start together, so without this each of them would find no compiled code and make it: time at every start, and
memory that the interpreter keeps (a megabyte and more for a module of some hundred lines). Requirements are left out:
pip has compiled them where they were installed, and there may be thousands of files. Whatever goes wrong here goes
unsaid, since the import of an instance meets it again and says it better.
"""

from __future__ import annotations

import compileall
import threading
import time
from pathlib import Path

ENOUGH_SECONDS = 5.0  # a large package is left to those who import it
_LEFT_OUT = frozenset({"requirements", "__pycache__"})


def compile_package(package_dir: Path, enough_seconds: float = ENOUGH_SECONDS) -> int:
    """Compile what is not compiled yet; how many files were looked at. Stops when the time is up."""
    until = time.monotonic() + enough_seconds
    looked = 0
    for path in sorted(package_dir.rglob("*.py")):
        if time.monotonic() >= until:
            break
        if _LEFT_OUT.isdisjoint(path.relative_to(package_dir).parts):
            looked += 1
            compileall.compile_file(path, quiet=2)
    return looked


def begin_to_compile(package_dir: Path) -> None:
    """The same on a thread: it has about as long as the zygote takes to get ready."""
    threading.Thread(target=compile_package, args=(package_dir,), name="compile", daemon=True).start()
