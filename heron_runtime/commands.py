"""How one process of Heronry starts another: the command, its environment, its working folder.

``-P`` keeps the working folder off ``sys.path``: that folder is the topology's home, and nothing in it may shadow a
module. When Heronry runs from a source checkout instead of site-packages, the checkout goes on PYTHONPATH.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import sysconfig
from collections.abc import Mapping
from pathlib import Path

import heron_runtime


def python_command(module: str, *arguments: str) -> list[str]:
    """``python -P -m module arguments`` with the interpreter that runs now."""
    return [sys.executable, "-P", "-m", module, *arguments]


def child_environment(extra: Mapping[str, str] | None = None, first_on_path: str = "") -> dict[str, str]:
    """The environment of a child: ours, unbuffered output, and what it needs to find Heronry.

    ``first_on_path`` is a folder whose modules win over everything that is installed.
    """
    environment = dict(os.environ)
    environment["PYTHONUNBUFFERED"] = "1"
    parts = [first_on_path] if first_on_path else []
    parts += [part for part in environment.get("PYTHONPATH", "").split(os.pathsep) if part and part not in parts]
    root = source_root()
    if root and root not in parts:
        parts.append(root)
    if parts:
        environment["PYTHONPATH"] = os.pathsep.join(parts)
    environment.update(extra or {})
    return environment


def start_session(command: list[str], folder: str, log_file: Path) -> subprocess.Popen[bytes]:
    """Start it in a session of its own, so that it outlives us. Raises OSError.

    ``log_file``: its own log, which gets what it prints before it has set that up.
    """
    with open(os.open(log_file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), "ab") as log:
        return subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=folder, env=child_environment(),
            start_new_session=True,
        )  # fmt: skip


def source_root() -> str:
    """The folder that holds Heronry's packages, or "" when that is site-packages."""
    root = Path(heron_runtime.__file__ or "").resolve().parents[1]
    installed = {Path(sysconfig.get_path(name)).resolve() for name in ("purelib", "platlib")}
    return "" if root in installed else str(root)


def raise_descriptor_limit() -> None:
    """Take as many file descriptors as the system allows, up to 65 536."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 65_536 if hard == resource.RLIM_INFINITY else min(hard, 65_536)
    if soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def own_group() -> None:
    """Be the leader of a process group, so that whatever we leave behind can be ended together."""
    if os.getpgrp() != os.getpid():
        os.setpgid(0, 0)
