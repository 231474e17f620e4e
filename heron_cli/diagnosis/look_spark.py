"""The facts for ``judge_spark``. Nothing here imports PySpark or starts a Spark."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from heron_cli.diagnosis.asking import ANSWER_SECONDS
from heron_cli.diagnosis.judge_spark import SparkFacts
from heron_cli.spark_submit import NEEDED


def look(environment: Mapping[str, str] = os.environ) -> SparkFacts:
    """Java, the packages of the extra, and the disk that shuffles spill to."""
    scratch = environment.get("SPARK_LOCAL_DIRS", "").partition(",")[0] or tempfile.gettempdir()
    packages = {name: _version(name) for name in NEEDED}
    java = _java(environment)
    if java is None:
        return SparkFacts(packages=packages, scratch=scratch, free_bytes=_free(scratch))
    trouble, said = "", ""
    try:
        # It speaks on stderr, and well: so this is no `ask`.
        done = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=ANSWER_SECONDS, check=False)
        said = done.stderr + done.stdout
    except subprocess.TimeoutExpired:
        trouble = f"`{java} -version` does not answer within {ANSWER_SECONDS:g} s"
    except OSError as error:
        trouble = f"{java} cannot be run: {error}"
    found = re.search(r'version "(\d+)', said)
    return SparkFacts(java, int(found[1]) if found else None, trouble, packages, scratch, _free(scratch))


def _java(environment: Mapping[str, str]) -> str | None:
    """That of JAVA_HOME, or else of the path, as Spark takes it."""
    home = environment.get("JAVA_HOME")
    return (shutil.which("java", path=str(Path(home, "bin"))) if home else None) or shutil.which("java")


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return ""


def _free(folder: str) -> int | None:
    """None where nothing can be written."""
    try:
        with tempfile.TemporaryFile(dir=folder):
            return shutil.disk_usage(folder).free
    except OSError:
        return None
