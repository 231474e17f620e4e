"""What ``heron submit spark`` needs of this machine (docs/explanation/spark.md): findings of facts that ``look_spark``
has gathered.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from heron_cli.diagnosis.findings import Finding, bad, good, note, numbers

JAVA = "Java"
JAVA_NEEDED = 17
PYSPARK_NEEDED, PANDAS_TOO_NEW = (4, 0), (3,)  # as the extra says
DISK_NEEDED_BYTES = 1 << 30  # what a shuffle spills


@dataclass(frozen=True, slots=True)
class SparkFacts:
    """``java``: its path, "" for none; ``version``: its main number, None if it does not say; ``packages``: name to
    version of what is needed, "" for what is not there; ``scratch``: the folder that shuffles spill to."""

    java: str = ""
    version: int | None = None
    trouble: str = ""
    packages: Mapping[str, str] = field(default_factory=dict)
    scratch: str = "/tmp"  # Spark's own default
    free_bytes: int | None = None


def java(facts: SparkFacts) -> Finding:
    """Whether there is a Java that is new enough."""
    cure = f"install Java {JAVA_NEEDED} or newer (deploy/java-setup), and set JAVA_HOME to it."
    if not facts.java:
        return bad(JAVA, "there is none", cure)
    if facts.trouble:
        return bad(JAVA, facts.trouble, cure)
    text = f"{facts.java}, version {'unknown' if facts.version is None else facts.version}"
    if facts.version is None or facts.version < JAVA_NEEDED:
        return bad(JAVA, text, cure)
    return good(JAVA, text)


def spark_findings(facts: SparkFacts) -> Iterator[Finding]:
    """Everything that a job on this machine needs."""
    yield java(facts)
    yield _packages(facts.packages)
    text = f"{facts.scratch} for shuffles"
    cure = "Set SPARK_LOCAL_DIRS to a folder on a larger disk."
    if facts.free_bytes is None:
        yield bad("disk of Spark", f"{text} cannot be written", cure)
    elif facts.free_bytes < DISK_NEEDED_BYTES:
        yield note("disk of Spark", f"{text} has {facts.free_bytes / (1 << 30):.1f} GiB free", cure)
    else:
        yield good("disk of Spark", f"{text} has {facts.free_bytes / (1 << 30):.1f} GiB free")


def _packages(packages: Mapping[str, str]) -> Finding:
    check, cure = "PySpark", "pip install 'heronry[spark]'."
    lacking = [name for name, version in packages.items() if not version]
    if lacking:
        return bad(check, f"not installed: {', '.join(lacking)}", cure)
    text = ", ".join(f"{name} {version}" for name, version in packages.items())
    if "pyspark" in packages and numbers(packages["pyspark"]) < PYSPARK_NEEDED:
        return bad(check, f"{text}: PySpark is too old", cure)
    if "pandas" in packages and numbers(packages["pandas"]) >= PANDAS_TOO_NEW:
        return bad(check, f"{text}: PySpark does not support this pandas yet", cure)
    return good(check, text)
