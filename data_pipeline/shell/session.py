"""Spark sessions for jobs: settings that apply everywhere, and an end that leaves nothing behind.

The driver runs in this process (client mode), so the JVM is its child and ends with it. The gateway's JVM reads our end
of a pipe and stops at end of file, even after ``kill -9``. The settings here are those that a program's semantics
depend on (UTC, overflow as an error, exact field names, the interpreter of the Python workers), or that keep Spark from
writing to the user's terminal. All other settings of a site (queues, images, memory) come from ``--conf`` or Spark's
own configuration folder and are not changed.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TextIO

from py4j import protocol
from pyspark.sql import SparkSession
from pyspark.sql.types import NumpyArrayConverter, NumpyScalarConverter

import heronry
from data_pipeline.shell import class_archive
from data_pipeline.shell.warm import taken

DRIVER_MEMORY = "1g"
OPEN_BYTES = 128 * 1024  # cost of opening a file when files are packed into tasks; Spark's default is 4 MiB
LOCAL_SHUFFLE_PARTITIONS_PER_CORE = 1


@dataclass(frozen=True)
class SessionOptions:
    """Options of a session."""

    name: str
    master: str = "local[*]"
    conf: Mapping[str, str] = field(default_factory=dict)  # the user's spark.* settings, which take precedence
    ship: tuple[Path, ...] = ()  # .py and .zip files that executors put on sys.path
    page: bool = False  # Spark's web page on 127.0.0.1, for long jobs on this machine

    @property
    def is_local(self) -> bool:
        """True if executors are on this machine."""
        return is_local(self.master)


def is_local(master: str) -> bool:
    """Return True if executors are on this machine, usually as threads of the driver's JVM."""
    return master == "local" or master.startswith(("local[", "local-cluster"))


def settings_of(options: SessionOptions) -> dict[str, str]:
    """Return every spark.* setting of the session."""
    settings = {
        "spark.app.name": options.name,
        "spark.master": options.master,
        "spark.driver.memory": DRIVER_MEMORY,
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.ansi.enabled": "true",  # an overflow is an error, not a wrong number
        "spark.sql.caseSensitive": "true",  # Id and id are different fields, as in Python
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        "spark.sql.execution.pyspark.udf.faulthandler.enabled": "true",
        "spark.sql.files.openCostInBytes": str(OPEN_BYTES),
        "spark.sql.adaptive.coalescePartitions.parallelismFirst": "false",
        "spark.hadoop.mapreduce.fileoutputcommitter.marksuccessfuljobs": "false",
    }
    if options.is_local and options.page:
        settings |= {"spark.ui.enabled": "true", "spark.ui.killEnabled": "false"}
    if options.is_local:
        settings |= {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
        settings["spark.sql.shuffle.partitions"] = str(LOCAL_SHUFFLE_PARTITIONS_PER_CORE * _cores(options.master))
    return settings | dict(options.conf)


def _cores(master: str) -> int:
    inside = master.partition("[")[2].partition("]")[0].partition(",")[0]
    return int(inside) if inside.isdecimal() else len(os.sched_getaffinity(0)) if inside == "*" else 1


@contextmanager
def session(options: SessionOptions, out: TextIO) -> Iterator[SparkSession]:
    """Provide a session for a job, in the warm Spark or in a new one; ``out`` receives a message about which."""
    _environment(options)
    with taken(options.master, options.conf, options.ship, out) as spark:
        if spark is not None:
            yield spark
            return
    out.write(f"starting Spark at {options.master}\n")
    out.flush()
    with own_session(options) as spark:
        yield spark


@contextmanager
def own_session(
    options: SessionOptions, starting: AbstractContextManager[None] | None = None
) -> Iterator[SparkSession]:
    """Provide a new session, stopped at the end of the block together with its JVM's executors.

    An exception of the block is raised even if stopping also fails. The JVM is started within ``starting``; by default
    it maps the archive of classes.
    """
    _environment(options)
    builder = SparkSession.builder
    for key, value in settings_of(options).items():
        builder = builder.config(key, value)
    on_interrupt = signal.getsignal(signal.SIGINT)
    with starting or class_archive.mapped():
        spark = builder.getOrCreate()
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, on_interrupt)  # PySpark has installed its own
    try:
        for file in options.ship:
            spark.sparkContext.addPyFile(str(file))
        _read_as_they_are(spark)
        yield spark
    except BaseException:
        with suppress(protocol.Py4JError):  # an interrupted call may have closed the connection
            spark.stop()
        raise
    spark.stop()


def _read_as_they_are(spark: SparkSession) -> None:
    """Make this JVM read local files without Hadoop's checksum files next to them.

    Such a `.NAME.crc` may be of an older file, and its name cannot be made for one with a colon.
    """
    jvm, configuration = spark._jvm, spark._jsparkSession.sessionState().newHadoopConf()
    assert jvm is not None
    jvm.org.apache.hadoop.fs.FileSystem.get(jvm.java.net.URI("file:///"), configuration).setVerifyChecksum(False)


def without_numpy() -> None:
    """Remove PySpark's check of each argument of a JVM call for NumPy values.

    The check imports pandas, which takes 1.5 s of processor time, and such values are never passed here.
    """
    converters = (NumpyScalarConverter, NumpyArrayConverter)
    protocol.INPUT_CONVERTER[:] = [c for c in protocol.INPUT_CONVERTER if not isinstance(c, converters)]


def _environment(options: SessionOptions) -> None:
    """Set the variables that Spark reads from the environment before there is a session."""
    without_numpy()
    if options.is_local:
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        # On another machine this interpreter's path may not exist; set PYSPARK_PYTHON or spark.pyspark.python there.
    if options.is_local or "spark.pyspark.python" not in options.conf:
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    # Local workers are child processes and import the same source tree.
    root = str(Path(heronry.__file__).resolve().parent.parent)
    paths = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    if root not in paths:
        os.environ["PYTHONPATH"] = os.pathsep.join([root, *filter(None, paths)])
