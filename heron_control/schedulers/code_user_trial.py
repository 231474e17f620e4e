"""Check before a submission that instances can run as the user that ``heron.user.code.user`` names.

That user must be able to read the interpreter, Heronry and the topology's code. If they are in a folder that is closed
to other users, as root's home often is, every instance would fail.
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
    """Import an instance's modules and list its code as this user.

    Raises:
        NotAllowed: The user cannot run instances.
    """
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
