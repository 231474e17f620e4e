"""Imports of executors: only shipped packages, and no library that only the service needs."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
SHIPPED = ("heronry", "heron_runtime", "data_pipeline")
OURS = sorted(p.parent.name for p in ROOT.glob("*/__init__.py"))
SERVICE = ("grpc", "google", "kazoo", "fastapi", "starlette", "uvicorn", "httpx", "typer", "docker", "psutil")
IMPORT = """
import importlib, sys

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in sys.argv[1].split(","):
            raise ModuleNotFoundError(f"executors have no {name}", name=name)

sys.meta_path.insert(0, Absent())
sys.path[:0] = sys.argv[2].split(",")
for name in sys.argv[3:]:
    importlib.import_module(name)
where = {m.__file__ for n, m in sys.modules.items() if n.partition(".")[0] in ("heronry", "heron_runtime")}
assert all(".zip/" in file for file in where), where
"""


def modules(folder: str) -> list[str]:
    files = sorted((ROOT / folder).rglob("*.py"))
    return [".".join(f.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__") for f in files]


def zipped(folder: Path, package: str) -> Path:
    """Zip the package as the driver ships it (``data_pipeline/shell/program.py``)."""
    target = folder / f"{package}.zip"
    with zipfile.ZipFile(target, "w") as made:
        for file in (ROOT / package).rglob("*.py"):
            made.write(file, str(file.relative_to(ROOT)))
    return target


def import_as_executor(folder: Path, wanted: list[str]) -> None:
    paths = [str(zipped(folder, package)) for package in SHIPPED]
    absent = [name for name in (*OURS, *SERVICE) if name not in SHIPPED]
    assert "heron_control" in absent
    done = subprocess.run(
        [sys.executable, "-I", "-c", IMPORT, ",".join(absent), ",".join(paths), *wanted],
        cwd=folder, capture_output=True, text=True, check=False, timeout=60, env={"PATH": os.defpath},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


def test_cores_and_programs_import_only_shipped_packages(tmp_path: Path) -> None:
    wanted = modules("data_pipeline/core") + modules("heronry/streamlet") + modules("heronry/pipeline")
    import_as_executor(tmp_path, wanted)


def test_spark_tasks_import_only_shipped_packages(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow", reason="comes with PySpark: deploy/spark-setup")
    pytest.importorskip("pyspark", reason="needs PySpark: deploy/spark-setup")
    import_as_executor(tmp_path, [f"data_pipeline.shell.{name}" for name in ("tasks", "sinks", "catalyst")])
