"""The wheel is complete: a topology runs from it alone, in another folder and without PYTHONPATH.

The new environment sees the dependencies of the test environment through a .pth file (so nothing is downloaded), but
not this source tree: Heronry is imported from the wheel.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import sysconfig
import venv
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

ROOT = Path(__file__).resolve().parents[3]
SECONDS = 240
PAGE = (".html", ".js", ".css", ".svg")


def run(*command: str | Path, cwd: Path, code: int = 0, **environment: str) -> str:
    """Return the standard output of a command that must end with ``code``."""
    kept = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "VIRTUAL_ENV")}
    done = subprocess.run(
        [str(part) for part in command], cwd=cwd, env={**kept, **environment}, capture_output=True, text=True,
        timeout=SECONDS, check=False,
    )  # fmt: skip
    assert done.returncode == code, f"{command}: {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the wheel from a copy of the files in git, so that no stale file in build/ is included."""
    folder = tmp_path_factory.mktemp("wheel")
    source = folder / "source"
    listed = run("git", "ls-files", "--cached", "--others", "--exclude-standard", "-z", cwd=ROOT).split("\0")
    kinds = (".py", ".toml", ".md", ".typed", ".proto", ".pyi", "LICENSE", *PAGE)
    for name in filter(None, listed):
        if (ROOT / name).is_file() and name.endswith(kinds):
            (source / name).parent.mkdir(parents=True, exist_ok=True)
            (source / name).write_bytes((ROOT / name).read_bytes())
    run(sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", folder, source, cwd=folder)
    (made,) = folder.glob("*.whl")
    return made


@pytest.fixture(scope="module")
def environment(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a new environment with the wheel installed."""
    folder = tmp_path_factory.mktemp("environment")
    venv.create(folder, with_pip=False, symlinks=True)
    python = folder / "bin" / "python"
    run(sys.executable, "-m", "pip", "--python", python, "install", "--no-deps", "--no-index", "--quiet",
        "--disable-pip-version-check", wheel, cwd=folder)  # fmt: skip
    (site,) = folder.glob("lib/python3*/site-packages")
    (site / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return folder


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Path]:
    """Yield a home and end all processes in it afterwards."""
    folder = tmp_path / "home"
    yield folder
    for process in processes_in(folder):
        process.kill()


def processes_in(folder: Path) -> list[psutil.Process]:
    """Return the living processes that work below ``folder``."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.cwd().startswith(str(folder)) and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
        except psutil.Error:
            continue
    return found


def test_wheel_contains_all_packages_and_nothing_else(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    tops = {name.split("/")[0] for name in names if not name.split("/")[0].endswith(".dist-info")}
    rooms = {p.parent.name for p in ROOT.glob("*/__main__.py")} - {"benchmarks"}
    assert rooms <= tops
    assert "heronry" in tops
    assert not tops & {"protos", "tests", "examples", "benchmarks", "deploy", "docs"}
    assert "heronry/py.typed" in names
    (licence,) = (name for name in names if name.endswith("/licenses/LICENSE"))
    assert zipfile.ZipFile(wheel).read(licence) == (ROOT / "LICENSE").read_bytes()


def test_wheel_contains_the_complete_web_page(wheel: Path, environment: Path, tmp_path: Path) -> None:
    archive = zipfile.ZipFile(wheel)
    shipped = {name: archive.read(name) for name in archive.namelist() if name.startswith("heron_tracker/static/")}
    here = {str(p.relative_to(ROOT)): p.read_bytes() for p in (ROOT / "heron_tracker" / "static").rglob("*.*")}
    assert {Path(name).suffix for name in here} == set(PAGE)
    assert shipped == here
    code = "from heron_tracker.routes.server import STATIC; print(*sorted(STATIC))"
    served = run(environment / "bin" / "python", "-c", code, cwd=tmp_path).split()
    assert served == sorted(name.removeprefix("heron_tracker/static/") for name in here)


def test_installed_wheel_runs_the_readme_topology(environment: Path, home: Path, tmp_path: Path) -> None:
    heron = environment / "bin" / "heron"
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (source,) = re.findall(r"```python\n(# hello\.py\n.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    (elsewhere / "hello.py").write_text(source)

    def shown(*arguments: str) -> Any:
        return json.loads(run(heron, *arguments, "-o", "json", cwd=elsewhere, HERONRY_HOME=str(home)))

    where = run(environment / "bin" / "python", "-c", "import heronry; print(heronry.__file__)", cwd=elsewhere).strip()
    assert Path(where).is_relative_to(environment)
    assert set(shown("version")) == {"heronry", "python", "grpc", "protobuf"}
    quick = ("--config-property", "heron.stop.grace.secs=2")
    run(heron, "submit", "local", "hello.py", *quick, cwd=elsewhere, HERONRY_HOME=str(home))
    status = shown("status", "local", "Hello")
    assert status["state"] == "running"
    for process in status["processes"]:
        files = {m.path for m in psutil.Process(process["pid"]).memory_maps()}
        assert not any(path.startswith(f"{ROOT}/heron") for path in files)
        path = psutil.Process(process["pid"]).environ().get("PYTHONPATH", "")
        assert str(ROOT) not in path.split(os.pathsep)
    run(heron, "kill", "local", "Hello", cwd=elsewhere, HERONRY_HOME=str(home))
    assert processes_in(home) == []
    assert shown("list", "local") == []
