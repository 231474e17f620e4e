"""Sessions of jobs on the warm Spark: take it, run a session in it, and restore its state (``core/warm.py``).

One job at a time holds the lock. Its process connects to the JVM as to its own (Py4J, with the keeper's token) and
makes a session next to the keeper's, with separate settings, views and functions. The data that workers need of the
job is in their environment: the program's code and its arguments as the name of a file on PYTHONPATH, the environment
of the command, and its folder. Spark separates workers by their environment. Workers of an equal job are therefore
reused with all their imports, and never those of another program or version.

After a job that could not clean up (``kill -9``), the next job or the keeper does so.
"""

from __future__ import annotations

import contextlib
import os
import platform
import shutil
import sys
import time
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, TextIO

import pyspark
from py4j.protocol import Py4JError
from pyspark import SparkConf, SparkContext
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

from data_pipeline.core.warm import FOLDER, Places, Warm, code_name, lasting, reason_against
from data_pipeline.shell.spoken import heard
from data_pipeline.shell.tasks import WORKING_FOLDER
from heron_control.schedulers.identity import HostLock, is_held
from heron_runtime.files import replace_file
from heron_runtime.user_home import home_of_user
from heronry.version import VERSION

SETTLING_SECS = 2.0  # time to wait while the keeper cleans up


def places() -> Places:
    """Return the paths of this user's warm Spark."""
    return Places(home_of_user().absolute() / FOLDER)


def versions() -> str:
    """Return the versions that must be equal in the keeper and in a job."""
    return f"Heronry {VERSION}, PySpark {pyspark.__version__}, Python {platform.python_version()} at {sys.executable}"


def found() -> Warm | None:
    """Return the warm Spark of this user; None if none is running."""
    where = places()
    if not is_held(where.keeper):
        return None
    with contextlib.suppress(OSError, ValueError, TypeError):
        return Warm.from_json(where.record.read_bytes())
    return None


@contextlib.contextmanager
def taken(master: str, conf: Mapping[str, str], ship: tuple[Path, ...], out: TextIO) -> Iterator[SparkSession | None]:
    """Provide a session in the warm Spark for the block; None, with the reason on ``out``, if the job cannot use it.

    ``ship`` are the first entries on the path of the workers: the program's own code.
    """
    warm = found()
    if warm is None:
        yield None
        return
    against = reason_against(warm, master, conf, versions())
    lock = HostLock(places().job)
    if not against and not _acquired(lock):
        against = "it is at work for another job"
    spark = None
    if not against:
        try:
            spark, against = _session(warm, conf, ship)
        except (Py4JError, OSError) as error:
            against = f"it does not answer ({type(error).__name__}); see {warm.log}"
    if spark is None:
        lock.release()
        out.write(f"not on the warm Spark: {against}\n")
        yield None
        return
    try:
        out.write(f"on the warm Spark at {warm.master}\n")
        out.flush()
        with heard(Path(warm.log), out, from_end=True):
            yield spark
    finally:
        with contextlib.suppress(Py4JError, OSError):  # if it has died, no cleanup is needed
            settle(spark)
        lock.release()


def settle(spark: SparkSession) -> None:
    """Clean up after a job: end its queries and work, and drop its cached tables. The caller must hold the lock."""
    for query in spark.streams.active:
        query.stop()
    spark.sparkContext.cancelAllJobs()
    spark.catalog.clearCache()
    places().unsettled.unlink(missing_ok=True)


def _acquired(lock: HostLock) -> bool:
    until = time.monotonic() + SETTLING_SECS
    while not lock.acquire("job"):
        if time.monotonic() > until:
            return False
        time.sleep(0.1)
    return True


def _session(warm: Warm, conf: Mapping[str, str], ship: tuple[Path, ...]) -> tuple[SparkSession | None, str]:
    """Return a session with the job's settings, or the reason why there cannot be one."""
    os.environ |= {"PYSPARK_GATEWAY_PORT": str(warm.port), "PYSPARK_GATEWAY_SECRET": warm.token}
    try:
        gateway: Any = launch_gateway()
    finally:
        del os.environ["PYSPARK_GATEWAY_PORT"], os.environ["PYSPARK_GATEWAY_SECRET"]
    jvm = gateway.jvm
    context = jvm.JavaSparkContext.fromSparkContext(jvm.org.apache.spark.SparkContext.getOrCreate())
    environment = lasting(os.environ) | {WORKING_FOLDER: os.getcwd()}
    environment["PYTHONPATH"] = os.pathsep.join([str(_kept(ship)), os.environ["PYTHONPATH"]])
    shared = SparkContext(
        gateway=gateway, jsc=context, conf=SparkConf(_jconf=context.getConf()), environment=environment
    )
    spark = SparkSession(shared).newSession()
    if places().unsettled.exists():
        settle(spark)
    places().unsettled.touch()
    for key, value in conf.items():
        if warm.conf.get(key) == value:
            continue
        if not spark.conf.isModifiable(key):
            settle(spark)
            return None, f"it was started without {key}={value}"
        spark.conf.set(key, value)
    return spark, ""


def _kept(ship: tuple[Path, ...]) -> Path:
    """Store the program's code permanently, under a name made of its content and arguments, and return the path."""
    with zipfile.ZipFile(ship[0]) as code:
        inside = [part for name in sorted(code.namelist()) for part in (name.encode(), code.read(name))]
    place = places().code / f"{code_name([*(a.encode() for a in sys.argv[1:]), b'', *inside])}.zip"
    if not place.exists():
        place.parent.mkdir(exist_ok=True)
        replace_file(place, ship[0].read_bytes(), 0o600)
    return place


def end_workers(spark: SparkSession) -> None:
    """End all Python workers; Spark starts others on demand. No job may run.

    Spark itself must end them. It keeps idle workers in a queue. If their daemon was killed, the next job that takes
    one of them fails with "Stream closed". Spark 4 has no public method for it, so this uses a private field.

    Raises:
        Py4JError: This version of Spark has no such field. No worker is ended.
    """
    jvm: Any = spark._jvm
    # Py4J cannot call methods of SparkEnv, as their signatures name classes that PySpark does not ship.
    environment = spark._jsparkSession.sparkContext().env()
    field = jvm.java.lang.Class.forName("org.apache.spark.SparkEnv").getDeclaredField("pythonWorkers")
    field.setAccessible(True)
    factories = field.get(environment)
    each = factories.values().iterator()
    while each.hasNext():
        each.next().stop()
    factories.clear()


def forget_code() -> None:
    """Remove the code of all programs; no worker may be using it."""
    shutil.rmtree(places().code, ignore_errors=True)
