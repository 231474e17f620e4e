"""``make which-test FILE=heron_runtime/state/files.py``: the tests of a module, those that import it first.

Test folders mirror rooms (``tests/unit/<room or part of it>``), but a law may need several modules and a module several
files of laws, so names alone do not tell. What a test imports does, through its helpers, too.
"""

from __future__ import annotations

import ast
import sys
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
HELPERS = {path.stem: path for path in (ROOT / "tests").rglob("*.py") if not path.name.startswith("test_")}


@cache
def named(path: Path) -> frozenset[str]:
    """The dotted names that a file imports."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.add(node.module)
            names.update(f"{node.module}.{alias.name}" for alias in node.names)
    return frozenset(names)


def imported(path: Path) -> set[str]:
    """Those, and what the helpers that it imports do."""
    names: set[str] = set()
    files, seen = [path], {path}
    while files:
        found = named(files.pop())
        names |= found
        helpers = {HELPERS[name] for name in found & HELPERS.keys()} - seen
        files += helpers
        seen |= helpers
    return names


def tests_of(module: str) -> tuple[list[str], list[str]]:
    """The test files that import ``module``, and those that import something else of its folder."""
    direct, near = [], []
    folder = module.rpartition(".")[0] + "."
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        names = imported(path)
        if module in names:
            direct.append(str(path.relative_to(ROOT)))
        elif any(name.startswith(folder) for name in names):
            near.append(str(path.relative_to(ROOT)))
    return direct, near


def main(arguments: list[str]) -> int:
    """Print them. 2 for a file that is no module of ours."""
    if len(arguments) != 1 or not arguments[0].endswith(".py") or not (ROOT / arguments[0]).is_file():
        print("usage: make which-test FILE=path/of/a/module.py", file=sys.stderr)
        return 2
    module = arguments[0].removeprefix("./").removesuffix(".py").removesuffix("/__init__").replace("/", ".")
    direct, near = tests_of(module)
    print("\n".join(direct) or "no test imports it; whole processes run it: tests/integration, tests/faults")
    if near and not direct:
        print(f"\nof the same folder: {' '.join(near)}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
