"""Start of other Heronry processes: command, environment and working folder.

`-P` keeps the working folder off `sys.path`: it is the home of the topology, and its files must not shadow modules. A
source checkout, unlike site-packages, goes on PYTHONPATH. A process that will be needed soon can be started early
(`warm_up`); it imports while its parent does other work.
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import subprocess
import sys
import sysconfig
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import heron_runtime

MARK = "HERONRY_CONTAINER"  # environment variable of all descendants of a heron_container; it identifies the container


def python_command(module: str, *arguments: str) -> list[str]:
    """Return the command ``python -P -m module arguments`` for the current interpreter."""
    return [sys.executable, "-P", "-m", module, *arguments]


def child_environment(extra: Mapping[str, str] | None = None, first_on_path: str = "") -> dict[str, str]:
    """Return the environment of a child process.

    It is the environment of this process with unbuffered output and with a PYTHONPATH on which Heronry is found.

    Args:
        extra: Variables to add or replace.
        first_on_path: Folder whose modules take precedence over all installed ones.
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


_warm: dict[str, subprocess.Popen[bytes]] = {}  # started by ``warm_up`` and not used yet


def warm_up(module: str, imports: Iterable[str]) -> None:
    """Start a process that imports modules and waits until ``start_session`` uses it.

    An unused process ends with this process. An error is ignored here, since ``start_session`` will report it.

    Args:
        module: Module that the process will run.
        imports: Modules to import in advance.
    """
    with contextlib.suppress(OSError):
        _warm[module] = subprocess.Popen(
            python_command("heron_runtime.warm", module, *imports),
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=_of_no_container(),
            start_new_session=True,
        )


def start_session(module: str, arguments: Sequence[str], folder: str, output: Path) -> subprocess.Popen[bytes]:
    """Start ``python -m module arguments`` in a session of its own, so that it outlives this process. Raises OSError.

    Its output is appended to the file ``output``. A process that `warm_up` started for this module is used if it is
    available.
    """
    warm = _warm.pop(module, None)
    if warm is not None and warm.stdin is not None:
        order = {"arguments": list(arguments), "folder": folder, "output": str(output.absolute())}
        with contextlib.suppress(OSError), warm.stdin:  # it may have died
            warm.stdin.write(json.dumps(order).encode() + b"\n")
            warm.stdin.flush()
            return warm
    with open(os.open(output, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), "ab") as log:
        return subprocess.Popen(
            python_command(module, *arguments), stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=folder,
            env=_of_no_container(), start_new_session=True,
        )  # fmt: skip


def _of_no_container() -> dict[str, str]:
    """Return the child environment without `MARK`.

    User code or container 0 may cause the start of a session, but the session does not belong to the container and
    outlives it.
    """
    environment = child_environment()
    environment.pop(MARK, None)
    return environment


def source_root() -> str:
    """Return the folder that contains Heronry's packages, or "" if it is site-packages."""
    root = Path(heron_runtime.__file__ or "").resolve().parents[1]
    installed = {Path(sysconfig.get_path(name)).resolve() for name in ("purelib", "platlib")}
    return "" if root in installed else str(root)


def raise_descriptor_limit() -> None:
    """Raise the limit of open file descriptors as far as the system allows, up to 65 536."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 65_536 if hard == resource.RLIM_INFINITY else min(hard, 65_536)
    if soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def own_group() -> None:
    """Become the leader of a process group, so that all leftover processes can be ended together."""
    if os.getpgrp() != os.getpid():
        os.setpgid(0, 0)
