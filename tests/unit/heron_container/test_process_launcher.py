"""Code that processes load: user modules compiled once, and distributions that a topology may not replace."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

from heron_container.shell.process_launcher import LOADED, compile_package


def compiled(path: Path) -> Path:
    return Path(importlib.util.cache_from_source(str(path)))


def test_own_modules_are_compiled_and_requirements_are_not(tmp_path: Path) -> None:
    for name in ("words.py", "deep/inner.py", "requirements/other.py", "broken.py"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text("def (" if name == "broken.py" else "VALUE = 1\n")
    assert compile_package(tmp_path) == 3
    assert compiled(tmp_path / "words.py").exists()
    assert compiled(tmp_path / "deep/inner.py").exists()
    assert not compiled(tmp_path / "requirements/other.py").exists()
    assert not compiled(tmp_path / "broken.py").exists()


def test_compiled_module_is_kept_until_its_source_changes(tmp_path: Path) -> None:
    path = tmp_path / "words.py"
    path.write_text("VALUE = 1\n")
    compile_package(tmp_path)
    first = compiled(path).read_bytes()
    compile_package(tmp_path)
    assert compiled(path).read_bytes() == first
    path.write_text("VALUE = 'another'\n")
    os.utime(path, (1, 1))  # compiled code stores whole seconds
    compile_package(tmp_path)
    assert compiled(path).read_bytes() != first


def test_compilation_stops_at_its_time_limit_and_accepts_a_missing_folder(tmp_path: Path) -> None:
    (tmp_path / "words.py").write_text("VALUE = 1\n")
    assert compile_package(tmp_path, enough_seconds=0.0) == 0
    assert compile_package(tmp_path / "nowhere") == 0


LOOK = """
import importlib.metadata, sys
from heron_container.zygote import IMPORTED_FOR_INSTANCES, preload
preload(IMPORTED_FOR_INSTANCES)
ours = importlib.metadata.packages_distributions()
loaded = {name.partition(".")[0] for name, module in sys.modules.items() if getattr(module, "__spec__", None)}
print(*{name.lower().replace("_", "-") for top in loaded for name in ours.get(top, ())})
"""
OF_THE_INTERPRETER = {"heronry", "setuptools"}  # our own, and what a .pth file of setuptools adds to every process


def test_loaded_distributions_match_those_of_the_zygote() -> None:
    done = subprocess.run([sys.executable, "-c", LOOK], capture_output=True, text=True, check=True, timeout=120)
    assert set(done.stdout.split()) - OF_THE_INTERPRETER == set(LOADED)
