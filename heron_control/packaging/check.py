"""Check of an untrusted package in a process with limited memory and CPU time.

``python -m heron_control.packaging.check FILE LIMITS``. The process may take MEMORY_BYTES and CPU_SECONDS, so the
caller survives whatever an archive makes the libraries do that read it. LIMITS is JSON, the fields of
``ArchiveLimits``. Exit codes: 0 accepted, 7 refused; stdout gives the reason.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from heron_control.packaging.shipping import check_package
from heron_control.packaging.writer import ArchiveLimits
from heron_runtime.spawn import child_environment, python_command
from heronry.api.errors import PackageError

MEMORY_BYTES = 512 << 20
CPU_SECONDS = 120
WALL_SECONDS = 900.0
MAX_SAID = 4000


def check_package_apart(archive: Path, limits: ArchiveLimits) -> None:
    """Run ``check_package`` in a process of its own.

    Raises:
        PackageError: The package is refused, or the check exceeds its limits.
        OSError: The check itself fails.
    """
    command = python_command(__spec__.name, str(archive), json.dumps(asdict(limits)))
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, cwd="/", env=child_environment(),
            timeout=WALL_SECONDS, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        raise PackageError(f"{archive.name} took longer to check than {WALL_SECONDS:g} s") from None
    if done.returncode == 0:
        return
    if done.returncode == PackageError.exit_code:
        raise PackageError(done.stdout[:MAX_SAID].decode("utf-8", "replace"))
    if done.returncode < 0:  # by a signal: SIGXCPU, or the system ran out of memory
        raise PackageError(f"{archive.name} takes more than {CPU_SECONDS} s, or more memory than available, to check")
    raise OSError(f"the check of a package failed: {done.stderr[-MAX_SAID:].decode('utf-8', 'replace')}")


def main(arguments: Sequence[str]) -> int:
    """Check a package and return the exit code."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS, CPU_SECONDS))
    archive, limits = arguments
    try:
        check_package(Path(archive), ArchiveLimits(**json.loads(limits)))
    except PackageError as error:
        sys.stdout.write(str(error))
        return PackageError.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
