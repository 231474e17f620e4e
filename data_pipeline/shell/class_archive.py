"""Archive of Spark's classes, which halves the processor time in which a new Spark starts.

Most of the cost of a small job is a JVM that reads, verifies and lays out some twenty thousand classes. Java can write
them to an archive once and map it into each later JVM (class data sharing, JEP 350). ``make`` runs a small job of each
kind and lets its JVM write the archive at its end; ``own_session`` maps it. An archive fits one Java, one PySpark and
one processor architecture, all of which are part of its name. If it does not fit after all, the JVM silently continues
without it. The archive is in the virtual environment, and is removed with it. Only one process makes it at a time, so
another process's work folder is a leftover of a dead process.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import platform
import shutil
import sys
import tempfile
from collections.abc import Iterator
from importlib import metadata, util
from pathlib import Path
from typing import TYPE_CHECKING, Any

from heron_control.schedulers.identity import HostLock

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

OPTIONS = "SPARK_SUBMIT_OPTS"  # options that spark-submit passes to the JVM of a driver in addition to its own
MAKING = ".making-"
SILENT = "-Xshare:auto -Xlog:disable -Xlog:all=off"


def archive() -> Path:
    """Return the path of the archive for this Java and this PySpark, whether or not it exists."""
    text = "\0".join([_java(), metadata.version("pyspark"), _jars(), platform.machine()])
    name = f"spark-{hashlib.sha256(text.encode()).hexdigest()[:16]}.jsa"
    return Path(sys.prefix, "share", "heronry", name)


def _java() -> str:
    """Return the path, size and time of the Java that Spark will use, so that a replaced Java is detected."""
    home = os.environ.get("JAVA_HOME")
    java = Path(home, "bin", "java") if home else Path(shutil.which("java") or "java")
    real = java.resolve()
    with contextlib.suppress(OSError):
        facts = real.parent.parent.joinpath("lib", "modules").stat()
        return f"{real} {facts.st_size} {facts.st_mtime_ns}"
    return str(real)


def _jars() -> str:
    """Return the folder of Spark's jars and its time, which changes when files are added or removed."""
    home = os.environ.get("SPARK_HOME")
    spec = util.find_spec("pyspark")
    origin = Path(spec.origin).parent if spec is not None and spec.origin else Path()
    folder = (Path(home) if home else origin) / "jars"
    with contextlib.suppress(OSError):
        return f"{folder} {folder.stat().st_mtime_ns}"
    return str(folder)


@contextlib.contextmanager
def mapped() -> Iterator[None]:
    """Make a JVM that is started within the block map the archive, if it exists."""
    file = archive()
    with _jvm(f"-XX:SharedArchiveFile={file} {SILENT}" if _usable(file) else ""):
        yield


def _usable(file: Path) -> bool:
    """Return True if the file exists and its path has no spaces, at which spark-submit splits its options."""
    return file.is_file() and len(str(file).split()) == 1


@contextlib.contextmanager
def _jvm(options: str) -> Iterator[None]:
    """Give these options to a JVM that is started within the block, before the user's own, which take precedence."""
    before = os.environ.get(OPTIONS)
    if not options:
        yield
        return
    os.environ[OPTIONS] = " ".join(filter(None, [options, before]))
    try:
        yield
    finally:
        if before is None:
            del os.environ[OPTIONS]
        else:
            os.environ[OPTIONS] = before


@contextlib.contextmanager
def workshop(parent: Path) -> Iterator[Path]:
    """Provide a folder for making the archive until the block ends, and remove leftovers of killed processes.

    Raises:
        OSError: The folder cannot be made.
        RuntimeError: Another process has one.
    """
    parent.mkdir(parents=True, exist_ok=True)
    lock = HostLock(parent / ".making.lock")
    if not lock.acquire(""):
        raise RuntimeError("another `heron spark prepare` is writing it now; what that writes serves all")
    try:
        for leftover in parent.glob(f"{MAKING}*"):
            shutil.rmtree(leftover, ignore_errors=True)  # the next run removes the rest
        with tempfile.TemporaryDirectory(prefix=MAKING, dir=parent) as folder:
            yield Path(folder)
    finally:
        lock.release()


def make() -> Path:
    """Write the archive, which takes some 40 s of processor time, and return its path.

    Raises:
        OSError: The archive cannot be written.
        RuntimeError: Java did not write it, or another process is making it.
    """
    from data_pipeline.shell.session import SessionOptions, own_session

    file = archive()
    with workshop(file.parent) as folder:
        made = folder / file.name
        if len(str(made).split()) != 1:
            raise RuntimeError(f"Java cannot use a file whose path has a space: {made}")
        options = SessionOptions("heronry-classes", "local[2]", {"spark.log.level": "OFF"})
        with own_session(options, _jvm(f"-XX:ArchiveClassesAtExit={made} {SILENT}")) as spark:
            gateway: Any = spark.sparkContext._gateway
            _work(spark, folder)
        gateway.shutdown()
        gateway.proc.stdin.close()  # the JVM ends with it, and writes the archive
        gateway.proc.wait()
        if not made.is_file():
            raise RuntimeError(f"Java ended with {gateway.proc.returncode} and wrote no archive of classes")
        for older in file.parent.glob("spark-*.jsa"):
            if older != file:
                older.unlink()
        made.replace(file)
    return file


def _work(spark: SparkSession, folder: Path) -> None:
    """Run samples of jobs: text, JSON and Parquet read and written, a shuffle, a Python stage, and micro-batches."""

    def same(batches: Iterator[Any]) -> Iterator[Any]:
        yield from batches

    texts, tables = str(folder / "texts"), str(folder / "tables")
    rows = spark.range(1_000).selectExpr("id", "id % 7 AS key", "cast(id AS string) AS text", "id / 3.0D AS number")
    rows.selectExpr("to_json(struct(*)) AS value").write.text(texts)
    rows.write.parquet(tables)
    parsed = spark.read.text(texts).selectExpr("from_json(value, 'id BIGINT, key BIGINT, text STRING') AS r")
    read = parsed.select("r.*")
    read.groupBy("key").count().sort("key").collect()
    read.mapInArrow(same, read.schema).groupBy("key").agg({"id": "sum"}).collect()
    other = spark.read.parquet(tables)
    other.join(read.select("id"), "id").groupBy("key").agg({"number": "max", "text": "min"}).write.json(
        str(folder / "joined")
    )
    changes = spark.readStream.text(texts).mapInArrow(same, "value string").writeStream.format("parquet")
    query = changes.option("checkpointLocation", str(folder / "marks")).trigger(availableNow=True)
    query.start(str(folder / "stream")).awaitTermination()


if __name__ == "__main__":
    try:
        sys.stdout.write(f"{make()}\n")
    except (OSError, RuntimeError) as error:
        sys.exit(f"the archive of Spark's classes cannot be created: {error}")
