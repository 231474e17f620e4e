"""Can instances run as the user that ``heron.user.code.user`` names? It is tried before a submission is written.

That user needs to read the interpreter, Heronry and the topology's code, wherever those lie; what lies in a folder that
is closed to others, as the home of root often is, would fail in each instance, again and again.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from heron_runtime.code_user import NAME, CodeUser
from heron_runtime.failures import NotAllowed
from heron_runtime.spawn import child_environment

TRIAL_SECONDS = 60.0
_TRIAL = """
import os, sys
import heron_instance.shell.main
for entry in os.scandir(sys.argv[1]):
    os.listdir(entry) if entry.is_dir() else open(entry).close()
"""


def try_code_user(user: CodeUser, package: Path) -> None:
    """Import what an instance imports, and look into its code. Raises NotAllowed."""
    command = [sys.executable, "-P", "-c", _TRIAL, str(package)]
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=TRIAL_SECONDS, check=False,
            cwd="/", env=child_environment(user.environment()), user=user.uid, group=user.gid, extra_groups=user.groups,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as error:
        reason = str(error)
    else:
        if done.returncode == 0:
            return
        reason = next(reversed(done.stderr.strip().splitlines()), f"exit {done.returncode}")
    raise NotAllowed(
        f"{NAME}: as {user.name} no instance can run: {reason}",
        f"Let {user.name} read and search {sys.prefix}, Heronry and the way to {package.parent} "
        "(HERONRY_HOME may be another folder).",
    )
