"""Write minimal installed distributions: a module and a ``.dist-info`` folder with entry points."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path


def write_distribution(
    folder: Path, name: str, offers: Mapping[str, Mapping[str, str]], modules: Mapping[str, str] | None = None
) -> Path:
    """Write a distribution. ``offers``: names and values by group; ``modules``: text by module name."""
    info = folder / f"{name.replace('-', '_')}-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    lines = []
    for group, values in offers.items():
        lines += [f"[{group}]", *(f"{key} = {value}" for key, value in values.items())]
    (info / "entry_points.txt").write_text("\n".join(lines) + "\n")
    for module, text in (modules or {}).items():
        (folder / f"{module}.py").write_text(text)
    return folder
