"""Paths of documentation in code, messages and pages exist, or are pages that the site generates."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
GENERATED = re.compile(r'"(reference/[\w-]+\.md)":')
NAMED = re.compile(r"(?<![\w/.])docs/[\w/-]+\.md")


def test_every_documentation_path_in_the_repository_exists() -> None:
    generated = {f"docs/{name}" for name in GENERATED.findall((ROOT / "docs" / "generate.py").read_text())}
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split(
        "\n"
    )
    texts = [ROOT / name for name in listed if name and not name.endswith((".svg", ".png", ".gz", ".parquet"))]
    missing = {
        f"{path.relative_to(ROOT)}: {name}"
        for path in texts
        if path.is_file()
        for name in NAMED.findall(path.read_text(errors="replace"))
        if name not in generated and not (ROOT / name).is_file()
    }
    assert sorted(missing) == []
