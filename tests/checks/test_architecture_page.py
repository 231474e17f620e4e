"""Links of ``ARCHITECTURE.md`` lead to files that exist, and to functions and classes that these files define."""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "ARCHITECTURE.md").read_text()


def defined(path: Path) -> set[str]:
    """Return the names of the functions, classes and methods of a module, methods as ``Class.method``."""
    names = set()
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(node.name)
        if isinstance(node, ast.ClassDef):
            inner = (each for each in node.body if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef))
            names |= {f"{node.name}.{each.name}" for each in inner}
    return names


def test_linked_names_are_defined_in_the_linked_files() -> None:
    linked = re.findall(r"\[`([\w.]+)`\]\(([\w/]+\.py)\)", PAGE)
    missing = [f"{name} in {path}" for name, path in linked if name not in defined(ROOT / path)]
    assert linked
    assert missing == []


def test_named_files_and_packages_exist() -> None:
    linked = re.findall(r"\]\(([\w/.-]+)\)", PAGE)
    named = re.findall(r"`([a-z_]+/[\w/]*(?:\.py|/))`", PAGE)
    packages = re.findall(r"^\| \w* ?\| `(\w+)` \|", PAGE, re.MULTILINE)
    missing = [path for path in (*linked, *named, *packages) if not (ROOT / path).exists()]
    assert packages
    assert missing == []


def test_modules_named_in_package_readmes_exist() -> None:
    missing = []
    for readme in sorted(ROOT.glob("*/README.md")):
        folders = (ROOT, readme.parent, readme.parent / "core", readme.parent / "shell")
        for name in re.findall(r"`([a-z_/]+\.py)`", readme.read_text()):
            if not any((folder / name).exists() for folder in folders):
                missing.append(f"{readme.parent.name}/README.md: {name}")
    assert missing == []
