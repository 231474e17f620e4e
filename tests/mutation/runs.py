"""Selection of the tests that run a changed line, and their verdict on the mutant.

Theory of operation. One run of a package's unit tests under coverage records which tests run each line, and how long
each test takes (kept under ``.cache/``). A mutant is judged by the tests that run its statement, the fastest first, in
a process forked from one that has the libraries loaded: there an import hook replaces the module by the mutant, and
nothing on disk changes. Property tests first run on few examples, and on many if the mutant survives (alone: other
tests would repeat the same); failing examples are not minimised, and each run has the same examples. A mutant costs
half a second besides its tests, because pytest plugins that no unit test uses are not loaded: Schemathesis alone takes
a second.
"""

from __future__ import annotations

import ast
import hashlib
import importlib.abc
import importlib.util
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import traceback
import xml.etree.ElementTree as Xml
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NoReturn

import grpc  # noqa: F401  # loaded here, once, and not by each mutant's process
import hypothesis
import hypothesis.strategies
import numpy as np  # noqa: F401  # the same
import pytest
from coverage import CoverageData
from hypothesis import is_hypothesis_test

from .mutant import ROOT, Mutant

CACHE = ROOT / ".cache" / "mutation"
#: Plugins that no unit test of a core uses; loading them would take most of the time of a mutant.
LEFT_OUT = ("randomly", "cacheprovider", "xdist", "schemathesis", "anyio", "pytest_cov")
ARGUMENTS = (
    "-q", "-x", "--no-header", "--tb=line", "-W", "ignore::pytest.PytestAssertRewriteWarning",
    *(f"-pno:{plugin}" for plugin in LEFT_OUT),
)  # fmt: skip
#: Hypothesis profiles (tests/conftest.py): few examples, many for properties alone, as many as in `make test-all`.
BRIEFLY, AT_LENGTH, FULLY = "ci", "thorough", "default"


class Baseline:
    """Coverage of a package: the tests of each line of its files, and the seconds of each test.

    It is measured incrementally: of added or changed tests, only their files run again. A change of the package, or of
    shared test code, starts a new measurement.
    """

    def __init__(self, room: str) -> None:
        tests = sorted((ROOT / "tests" / "unit" / room).rglob("*.py"))
        shared = [path for path in tests if not path.name.startswith("test_")]
        where = CACHE / f"{room}-{_digest([*sorted((ROOT / room).rglob('*.py')), *shared])}"
        now = {str(path.relative_to(ROOT)): _digest([path]) for path in tests if path not in shared}
        parts = sorted(found.parent for found in where.glob("*/tests.xml"))
        known: dict[str, str] = {}
        for part in parts:
            known |= json.loads((part / "files.json").read_text())
        due = [file for file, digest in now.items() if known.get(file) != digest]
        if due:
            parts.append(where / f"{len(parts):03}")
            _measure(room, due, parts[-1])
            (parts[-1] / "files.json").write_text(json.dumps({file: now[file] for file in due}))
            (parts[-1] / "new.xml").rename(parts[-1] / "tests.xml")
        self.seconds: dict[str, float] = {}
        self._data: list[CoverageData] = []
        for part in parts:
            again = json.loads((part / "files.json").read_text())
            before = {test: spent for test, spent in self.seconds.items() if test.partition("::")[0] not in again}
            self.seconds = before | _seconds(part / "tests.xml")
            self._data.append(CoverageData(str(part / "coverage")))
            self._data[-1].read()
        self.seconds = {test: spent for test, spent in self.seconds.items() if test.partition("::")[0] in now}

    def tests_of(self, mutant: Mutant) -> list[str]:
        """Return the tests that run the mutant's statement, the fastest first.

        If importing runs it, these are the tests of the file, or all tests of the package if no test runs a line of the
        file (it has no function).
        """
        lines = _statement(mutant.file, mutant.line)
        contexts: set[str] = set()
        for data in self._data:
            by_line = data.contexts_by_lineno(str(ROOT / mutant.file))
            contexts |= {c for line in lines or by_line for c in by_line.get(line, ())}
        tests = {context.rpartition("|")[0] for context in contexts} & self.seconds.keys()
        if not tests and not lines:
            tests = set(self.seconds)
        return sorted(tests, key=lambda test: (self.seconds[test], test))


def _digest(files: Sequence[Path]) -> str:
    digest = hashlib.blake2b(digest_size=6)
    for path in files:
        digest.update(path.read_bytes())
    return digest.hexdigest()


def _measure(room: str, files: Sequence[str], where: Path) -> None:
    where.mkdir(parents=True, exist_ok=True)
    command = [
        sys.executable, "-m", "pytest", *files, "-q", "-p", "no:randomly", f"--cov={room}", "--cov-context=test",
        "--cov-report=", f"--junitxml={where / 'new.xml'}", "-o", "junit_family=xunit1",
    ]  # fmt: skip
    subprocess.run(command, cwd=ROOT, check=True, env={**os.environ, "COVERAGE_FILE": str(where / "coverage")})


def _seconds(report: Path) -> dict[str, float]:
    found: dict[str, float] = {}
    for case in Xml.parse(report).iter("testcase"):
        file, module = case.get("file", ""), case.get("classname", "")
        if not module.startswith(file.removesuffix(".py").replace("/", ".")):  # defined elsewhere
            file = module.replace(".", "/") + ".py"
        inner = module.removeprefix(file.removesuffix(".py").replace("/", ".")).strip(".")
        name = "::".join(part for part in (file, inner.replace(".", "::"), case.get("name", "")) if part)
        found[name] = float(case.get("time", 0))
    return found


@cache
def _statements(file: str) -> list[tuple[int, int]]:
    """Return first and last line of each simple statement in a function of the file, and of the heads of the others."""
    found = []
    for function in ast.walk(ast.parse((ROOT / file).read_text())):
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            for node in ast.walk(function):
                if isinstance(node, ast.stmt) and node is not function:
                    end = node.end_lineno or node.lineno
                    body: list[Any] = getattr(node, "body", None) or getattr(node, "cases", [])
                    if body:
                        first = body[0].pattern if isinstance(body[0], ast.match_case) else body[0]
                        end = max(node.lineno, first.lineno - 1)
                    found.append((node.lineno, end))
    return found


def _statement(file: str, line: int) -> range:
    """Return the lines of the innermost statement; empty outside of functions."""
    around = [(first, last) for first, last in _statements(file) if first <= line <= last]
    first, last = min(around, key=lambda lines: lines[1] - lines[0], default=(1, 0))
    return range(first, last + 1)


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.InspectLoader):
    """Import hook that replaces the module by the mutant."""

    def __init__(self, mutant: Mutant) -> None:
        self._mutant = mutant

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        """Return a spec for the mutant's module only."""
        file = str(ROOT / self._mutant.file)
        return importlib.util.spec_from_loader(name, self, origin=file) if name == self._mutant.module else None

    def get_source(self, fullname: str) -> str:
        """Return the source of the mutant."""
        return self._mutant.source

    def exec_module(self, module: Any) -> None:
        """Run the mutant."""
        module.__file__ = str(ROOT / self._mutant.file)
        exec(compile(self._mutant.source, module.__file__, "exec", dont_inherit=True), module.__dict__)


class _Plugin:
    """Plugin that disables shrinking, which takes minutes, and runs tests that are not properties once.

    Tests without properties do not depend on the number of examples.
    """

    def __init__(self, laws: str) -> None:
        self._laws = laws
        self._only_laws = laws == AT_LENGTH

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Leave out tests that have already run."""
        if self._only_laws:
            items[:] = [item for item in items if is_hypothesis_test(getattr(item, "obj", None))]

    def pytest_sessionstart(self) -> None:
        """Set the profile after ``tests/conftest.py``, before the tests are read."""
        hypothesis.settings.register_profile(
            "mutation", hypothesis.settings.get_profile(self._laws), database=None, derandomize=True,
            phases=(hypothesis.Phase.explicit, hypothesis.Phase.generate),
        )  # fmt: skip
        hypothesis.settings.load_profile("mutation")


def judge(mutant: Mutant, tests: Sequence[str], seconds: float, laws: str) -> str:
    """Return ``killed``, ``too long`` (also detected) or ``survived``. Raises RuntimeError if the tests cannot run."""
    if not tests:
        return "survived"

    def run() -> int:
        sys.meta_path.insert(0, _Finder(mutant))
        return int(pytest.main([*ARGUMENTS, f"--hypothesis-profile={laws}", *tests], plugins=[_Plugin(laws)]))

    code, talk = in_a_fork(run, seconds)
    if code is None:
        return "too long"
    if code in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
        return "survived"
    if code in (
        pytest.ExitCode.TESTS_FAILED,
        pytest.ExitCode.INTERRUPTED,
    ):  # not importable
        return "killed"
    if code == pytest.ExitCode.USAGE_ERROR and "ERROR collecting" in talk:  # so are all named tests
        return "killed"
    functions = list(dict.fromkeys(test.partition("[")[0] for test in tests))
    if code == pytest.ExitCode.USAGE_ERROR and "ERROR: not found" in talk and functions != list(tests):
        return judge(mutant, functions, seconds, laws)  # the name of a case contained a number that has changed
    raise RuntimeError(f"the tests of {mutant.file} end with {code}:\n{talk[-3000:]}")


def in_a_fork(run: Callable[[], int], seconds: float) -> tuple[int | None, str]:
    """Run in a forked process; return the result, or None if it is not back in time, and the output."""
    with tempfile.TemporaryFile() as talk:
        child = os.fork()
        if not child:
            _end_with(run, talk.fileno())
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            pid, status = os.waitpid(child, os.WNOHANG)
            if pid:
                talk.seek(0)
                return os.waitstatus_to_exitcode(status), talk.read().decode(errors="replace")
            time.sleep(0.02)
        os.killpg(child, signal.SIGKILL)
        os.waitpid(child, 0)
        return None, ""


def _end_with(run: Callable[[], int], talk: int) -> NoReturn:
    code = 70
    try:
        os.setsid()
        os.dup2(talk, 1)
        os.dup2(talk, 2)
        code = run()
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


def read_known(path: Path) -> dict[tuple[str, str], str]:
    """Return the known equivalent mutants: (file, change) to the reason."""
    return {(row["file"], row["change"]): row["reason"] for row in json.loads(path.read_text())}
