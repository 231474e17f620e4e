"""Style rules of the source tree that linters do not check."""

from __future__ import annotations

import ast
import re
import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

ROOMS = (
    "topology_master", "stream_manager", "heron_instance", "metrics_manager", "heron_container", "heron_scheduler",
    "heron_tracker", "heron_apiserver", "data_pipeline",
)  # fmt: skip
WITHOUT_SHELL = ("heron_tracker",)  # a core, and a module for each part of the process
FLAT = ("metrics_manager", "heron_apiserver", "heron_scheduler")  # "pure-cores" names their pure modules
# The longest function may only shrink: lower these limits when it has.
LONGEST = {"product": 73, "tests": 85, "benchmarks": 41, "examples": 35}


def sources() -> list[Path]:
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "*.py"],
        cwd=ROOT, capture_output=True, text=True, check=True,
    )  # fmt: skip
    return [ROOT / name for name in listed.stdout.split() if "_pb2" not in name and (ROOT / name).exists()]


def functions(tree: ast.AST) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


@pytest.mark.parametrize("room", ROOMS)
def test_every_package_has_its_standard_files(room: str) -> None:
    core = [] if room in FLAT else ["core/__init__.py"]
    shell = [] if room in (*WITHOUT_SHELL, *FLAT) else ["shell/__init__.py"]
    for name in ("README.md", "__main__.py", *shell, *core):
        assert (ROOT / room / name).exists(), f"{room}/{name} is missing"
    assert (ROOT / room / "core").exists() == bool(core), f"{room}/core decides nothing"


def test_image_contains_every_package_of_the_wheel() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    packages = {name.rstrip("*") for name in settings["tool"]["setuptools"]["packages"]["find"]["include"]}
    sent = {
        line[1:] for line in (ROOT / "deploy" / "Dockerfile.dockerignore").read_text().splitlines() if line[:1] == "!"
    }
    assert packages <= sent


def kind_of(path: Path) -> str:
    """Return the kind of code of a path; tests, benchmarks and examples have their own limits."""
    top = path.relative_to(ROOT).parts[0]
    return top if top in LONGEST else "product"


def test_functions_do_not_grow() -> None:
    long = []
    for path in sources():
        longest_function = LONGEST[kind_of(path)]
        for node in functions(ast.parse(path.read_text())):
            size = (node.end_lineno or node.lineno) - node.lineno
            if size > longest_function:
                long.append(f"{path.relative_to(ROOT)}:{node.lineno} {node.name}: {size} lines")
    assert long == []


def test_no_wall_clock_for_intervals_and_no_shell_strings() -> None:
    found = []
    for path in sources():
        if "tests" in path.parts:
            continue
        text = path.read_text()
        if "/core/" in str(path) and re.search(r"\btime\.(time|monotonic)\(", text):
            found.append(f"{path.relative_to(ROOT)}: a core reads the clock")
        if "shell=True" in text or "os.system(" in text:
            found.append(f"{path.relative_to(ROOT)}: a command by shell string")
        if "yaml.load(" in text:
            found.append(f"{path.relative_to(ROOT)}: yaml.load instead of safe_load")
    assert found == []


def test_no_thread_waits_on_a_simple_queue() -> None:
    # Its get with a timeout may wait indefinitely (see heron_instance/shell/inbox.py): queue.Queue does not.
    found = [
        str(path.relative_to(ROOT))
        for path in sources()
        if "tests" not in path.parts and re.search(r"\bSimpleQueue\(", path.read_text())
    ]
    assert found == []


def test_no_wait_swallows_its_cancellation() -> None:
    # asyncio.wait_for returns its result and drops the cancellation when both arrive at once (CPython 3.11): the
    # cancelling task waits indefinitely. asyncio.timeout does not.
    found = [
        str(path.relative_to(ROOT))
        for path in sources()
        if "tests" not in path.parts and re.search(r"asyncio\.wait_for\(", path.read_text())
    ]
    assert found == []


def test_only_instances_unpickle() -> None:
    # Instances, and Spark's workers, which run the user's code as instances do.
    allowed = {
        ROOT / "heron_instance" / "core" / "values_codec.py",
        ROOT / "heronry" / "streamlet" / "online" / "chain_bolt.py",
        ROOT / "heronry" / "streamlet" / "online" / "process_state.py",
        ROOT / "heronry" / "streamlet" / "online" / "rows.py",
        ROOT / "data_pipeline" / "core" / "payload.py",
        ROOT / "data_pipeline" / "shell" / "sinks.py",
        ROOT / "data_pipeline" / "shell" / "tasks.py",
        ROOT / "benchmarks" / "handwritten_spark.py",
        ROOT / "benchmarks" / "pipeline.py",
    }
    found = [
        str(path.relative_to(ROOT))
        for path in sources()
        if "tests" not in path.parts
        and path not in allowed
        and re.search(r"pickle\.loads?\(|Unpickler", path.read_text())
    ]
    assert found == []


def test_every_module_has_a_docstring() -> None:
    silent = [
        str(path.relative_to(ROOT))
        for path in sources()
        if path.name != "__init__.py"
        and path.read_text().strip()
        and not ast.get_docstring(ast.parse(path.read_text()))
    ]
    assert silent == []


def test_lint_exceptions_give_their_reason() -> None:
    bare = []
    for path in sources():
        for number, line in enumerate(path.read_text().splitlines(), 1):
            if re.search(r"#\s*(noqa|type: ignore)", line) and not re.search(
                r"#\s*(noqa(: ?[A-Z0-9, ]+)?|type: ignore(\[[a-z0-9, -]+\])?)\s+#\s+\S", line
            ):
                if "/tests/" in str(path):
                    continue
                bare.append(f"{path.relative_to(ROOT)}:{number}")
    assert bare == []
