"""Does the topology bring another version of something that the zygote has loaded?

If so its instances cannot be forked (the loaded version would win in silence); they are exec'ed, each in an
interpreter where the topology's own packages come first.
"""

from __future__ import annotations

import importlib.metadata
import re
from pathlib import Path

# The distributions that heron_container.zygote.IMPORTED pulls in, directly or not.
LOADED = (
    "grpcio", "protobuf", "numpy", "msgspec", "mmh3", "psutil", "setproctitle", "ddsketch", "typing-extensions", "six",
    "cloudpickle",
)  # fmt: skip


def package_folders(package_dir: Path) -> list[Path]:
    """Where a topology's installed requirements may lie, the first to be searched first."""
    return [folder for folder in (package_dir, package_dir / "requirements") if folder.is_dir()]


def conflicts(package_dir: Path) -> list[str]:
    """``name theirs (loaded: ours)`` for each distribution of another version than the loaded one."""
    ours = {name: version for name in LOADED if (version := _installed(name)) is not None}
    found = []
    for folder in package_folders(package_dir):
        for distribution in importlib.metadata.distributions(path=[str(folder)]):
            name = _normal(distribution.metadata["Name"] or "")
            if name in ours and distribution.version != ours[name]:
                found.append(f"{name} {distribution.version} (loaded: {ours[name]})")
    return sorted(set(found))


def _installed(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()
