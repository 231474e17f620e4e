"""Does the topology bring another version of something that the zygote has loaded?

If so its instances cannot be forked (the loaded version would win in silence); they are exec'ed, each in an
interpreter where the topology's own packages come first.
"""

from __future__ import annotations

import re
from pathlib import Path

# The distributions that heron_container.zygote.IMPORTED_FOR_INSTANCES loads, directly or not.
LOADED = (
    "ddsketch", "mmh3", "msgspec", "numpy", "protobuf", "psutil", "setproctitle", "six", "typing-extensions", "uvloop",
)  # fmt: skip


_METADATA = re.compile(r".*\.(dist-info|egg-info|egg)", re.IGNORECASE)  # how importlib.metadata finds a distribution


def package_folders(package_dir: Path) -> list[Path]:
    """Where a topology's installed requirements may lie, the first to be searched first."""
    return [folder for folder in (package_dir, package_dir / "requirements") if folder.is_dir()]


def conflicts(package_dir: Path) -> list[str]:
    """``name theirs (loaded: ours)`` for each distribution of another version than the loaded one."""
    folders = package_folders(package_dir)
    if not any(_METADATA.fullmatch(path.name) for folder in folders for path in folder.iterdir()):
        return []  # most topologies bring none, and to read the metadata of ours takes longer than to start an instance
    import importlib.metadata as metadata

    found = []
    for folder in folders:
        for distribution in metadata.distributions(path=[str(folder)]):
            name = _normal(distribution.metadata["Name"] or "")
            for ours in metadata.distributions(name=name) if name in LOADED else ():
                if ours.version != distribution.version:
                    found.append(f"{name} {distribution.version} (loaded: {ours.version})")
                break  # the first is the one that is imported
    return sorted(set(found))


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()
