"""The public API under a type checker: mypy finds the mistakes of the example programs, and nothing else."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parents[2]
PROGRAMS = ("typed_streamlets.py", "typed_topologies.py")
ERROR = re.compile(r"^(?P<file>\S+\.py):(?P<line>\d+): error: (?P<text>.*)$")


@pytest.fixture(scope="module")
def errors(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, int], list[str]]:
    """The errors of mypy by file and line."""
    cache = tmp_path_factory.mktemp("mypy")
    command = [sys.executable, "-m", "mypy", "--strict", "--hide-error-codes", f"--cache-dir={cache}"]
    files = [str((HERE / name).relative_to(ROOT)) for name in PROGRAMS]
    done = subprocess.run([*command, *files], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.stderr == ""
    found: dict[tuple[str, int], list[str]] = {}
    for line in done.stdout.splitlines():
        if match := ERROR.match(line):
            found.setdefault((Path(match["file"]).name, int(match["line"])), []).append(match["text"])
    return found


@pytest.mark.parametrize("program", PROGRAMS)
def test_mypy_reports_each_mistake_and_nothing_else(program: str, errors: dict[tuple[str, int], list[str]]) -> None:
    wrong = []
    for number, line in enumerate((HERE / program).read_text().splitlines(), 1):
        _, marked, expected = line.partition("  # error: ")
        reported = errors.get((program, number), [])
        if marked != "" and not any(expected in text for text in reported):
            wrong.append(f"{program}:{number}: {expected!r} is not reported, but {reported}")
        elif not marked and reported:
            wrong.append(f"{program}:{number}: {reported}")
    assert wrong == []
