"""The folder of a topology on the host that submits it: ``launch.json``, the secret, and what else belongs there.

It is prepared beside its place, so that two who submit the same name at once cannot mix their files, and takes the
place by one rename when the state store has decided who wins.
"""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Iterator
from pathlib import Path

from heron_runtime.launch import Launch

LAUNCH_FILE = "launch.json"
SECRET_FILE = "secret"
LOG_FILES = "log-files"
METRICS = "metrics"
PACKAGE = "package"
PREVIOUS_LOGS = "previous"
TOPOLOGIES = "topologies"


def place_of(root: Path, cluster: str, role: str, environ: str, name: str) -> Path:
    """Where the topology's folder is, below a home."""
    return root / TOPOLOGIES / cluster / role / environ / name


def staging_beside(place: Path) -> Path:
    """A new name for the folder while it is prepared; it begins with a dot, as no topology's name does."""
    return place.with_name(f".{place.name}.{secrets.token_hex(4)}")


def make_folder(folder: Path) -> None:
    """Make the folder, with those above it, for this user alone. Raises OSError."""
    above = [path for path in folder.parents if not path.exists()]
    for path in (*reversed(above), folder):
        path.mkdir(mode=0o700, exist_ok=path in above)  # mkdir(parents=True) would leave those above open to all


def write_secret(folder: Path) -> str:
    """Draw the topology's secret and write it (0400); returns it. Raises OSError."""
    secret = secrets.token_hex(32)
    descriptor = os.open(folder / SECRET_FILE, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o400)
    with os.fdopen(descriptor, "w") as file:
        file.write(secret)
    return secret


def take_place(staging: Path, place: Path) -> None:
    """Give the staged folder its name. What an earlier topology of this name left there goes, but its logs are kept."""
    kept = place / LOG_FILES
    if kept.is_dir():
        (staging / LOG_FILES).mkdir(mode=0o700, exist_ok=True)
        shutil.rmtree(kept / PREVIOUS_LOGS, ignore_errors=True)
        os.rename(kept, staging / LOG_FILES / PREVIOUS_LOGS)
    if place.exists():
        shutil.rmtree(place)
    os.rename(staging, place)


def load_launch(folder: Path) -> Launch | None:
    """What ``launch.json`` in the folder says; None if there is none that can be read."""
    try:
        return Launch.load(folder / LAUNCH_FILE)
    except (OSError, ValueError, TypeError):
        return None


def remove_folder(place: Path, *, keep_logs: bool = False) -> None:
    """Remove the folder, or all of it but the logs, and the folders above it that are empty then. Idempotent."""
    if keep_logs:
        for entry in _entries(place):
            if entry.name != LOG_FILES:
                shutil.rmtree(entry, ignore_errors=True) if entry.is_dir() else entry.unlink(missing_ok=True)
        return
    shutil.rmtree(place, ignore_errors=True)
    for parent in list(place.parents)[:3]:  # ENV, ROLE and CLUSTER go when nothing is left in them
        try:
            parent.rmdir()
        except OSError:
            return


def _entries(folder: Path) -> Iterator[Path]:
    try:
        yield from list(folder.iterdir())
    except FileNotFoundError:
        return
