"""Requirements of ``heron submit spark``: Java, PySpark and space for shuffles.

``collect_spark_facts`` gathers them without importing PySpark or starting Spark. The functions ``judge_*`` turn these
facts into findings. See docs/explanation/spark.md.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from heron_cli.commands.spark_job import NEEDED_PACKAGES
from heron_cli.diagnosis.findings import Finding, bad, good, note, version_numbers
from heron_cli.diagnosis.probe import COMMAND_SECONDS

JAVA = "Java"
JAVA_NEEDED = 17
PYSPARK_NEEDED, PANDAS_TOO_NEW = (4, 0), (3,)  # as in the extra `spark` of pyproject.toml
DISK_NEEDED_BYTES = 1 << 30  # for files that a shuffle spills


@dataclass(frozen=True, slots=True)
class SparkFacts:
    """Facts about this machine.

    Attributes:
        java: Path of Java, "" if it is missing.
        version: Major version of Java, None if unknown.
        trouble: Why Java cannot be run.
        packages: Version of each needed package, "" if it is missing.
        scratch: Folder that shuffles spill to.
        free_bytes: Free space of `scratch`, None if it is not writable.
    """

    java: str = ""
    version: int | None = None
    trouble: str = ""
    packages: Mapping[str, str] = field(default_factory=dict)
    scratch: str = "/tmp"  # Spark's own default
    free_bytes: int | None = None


def judge_java(facts: SparkFacts) -> Finding:
    """Check that Java is installed and new enough."""
    cure = f"Install Java {JAVA_NEEDED} or newer (deploy/java-setup), and set JAVA_HOME to it."
    if not facts.java:
        return bad(JAVA, "not installed", cure)
    if facts.trouble:
        return bad(JAVA, facts.trouble, cure)
    text = f"{facts.java}, version {'unknown' if facts.version is None else facts.version}"
    if facts.version is None or facts.version < JAVA_NEEDED:
        return bad(JAVA, text, cure)
    return good(JAVA, text)


def judge_spark(facts: SparkFacts) -> Iterator[Finding]:
    """Judge all facts."""
    yield judge_java(facts)
    yield _judge_packages(facts.packages)
    text = f"{facts.scratch} for shuffles"
    cure = "Set SPARK_LOCAL_DIRS to a folder on a larger disk."
    if facts.free_bytes is None:
        yield bad("disk of Spark", f"{text} is not writable", cure)
    elif facts.free_bytes < DISK_NEEDED_BYTES:
        yield note("disk of Spark", f"{text} has {facts.free_bytes / (1 << 30):.1f} GiB free", cure)
    else:
        yield good("disk of Spark", f"{text} has {facts.free_bytes / (1 << 30):.1f} GiB free")


def _judge_packages(packages: Mapping[str, str]) -> Finding:
    check, cure = "PySpark", "Run pip install 'heronry[spark]'."
    missing = [name for name, version in packages.items() if not version]
    if missing:
        return bad(check, f"not installed: {', '.join(missing)}", cure)
    text = ", ".join(f"{name} {version}" for name, version in packages.items())
    if "pyspark" in packages and version_numbers(packages["pyspark"]) < PYSPARK_NEEDED:
        return bad(check, f"{text}: PySpark is too old", cure)
    if "pandas" in packages and version_numbers(packages["pandas"]) >= PANDAS_TOO_NEW:
        return bad(check, f"{text}: PySpark does not support this pandas yet", cure)
    return good(check, text)


def collect_spark_facts(environment: Mapping[str, str] = os.environ) -> SparkFacts:
    """Return facts about this machine."""
    scratch = environment.get("SPARK_LOCAL_DIRS", "").partition(",")[0] or tempfile.gettempdir()
    packages = {name: _version(name) for name in NEEDED_PACKAGES}
    java = _java(environment)
    if java is None:
        return SparkFacts(packages=packages, scratch=scratch, free_bytes=_free_bytes(scratch))
    trouble, text = "", ""
    try:
        # Not `run_command`: Java prints its version to stderr.
        done = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=COMMAND_SECONDS, check=False)
        text = done.stderr + done.stdout
    except subprocess.TimeoutExpired:
        trouble = f"`{java} -version` does not answer within {COMMAND_SECONDS:g} s"
    except OSError as error:
        trouble = f"{java} cannot be run: {error}"
    match = re.search(r'version "(\d+)', text)
    return SparkFacts(java, int(match[1]) if match else None, trouble, packages, scratch, _free_bytes(scratch))


def _java(environment: Mapping[str, str]) -> str | None:
    """Return the Java that Spark uses: that of JAVA_HOME, otherwise that of PATH."""
    home = environment.get("JAVA_HOME")
    return (shutil.which("java", path=str(Path(home, "bin"))) if home else None) or shutil.which("java")


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return ""


def _free_bytes(folder: str) -> int | None:
    """Return the free space of a folder, None if it is not writable."""
    try:
        with tempfile.TemporaryFile(dir=folder):
            return shutil.disk_usage(folder).free
    except OSError:
        return None
