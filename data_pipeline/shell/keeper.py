"""Keeper process of the warm Spark of a user: ``python -m data_pipeline.shell.keeper`` (``heron spark start``).

This process is the driver; its JVM ends with it, however it ends. Once a second it checks whether the JVM is alive,
whether a job has left something behind, and whether it is time to end. It ends after SIGTERM, when no job has run for
the idle time, or when its record file is missing or belongs to another keeper. It runs only a small first job, which
loads the classes that every job needs.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

import psutil
from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

from data_pipeline.core.warm import Places, Warm
from data_pipeline.shell import warm
from data_pipeline.shell.session import SessionOptions, own_session
from heron_control.schedulers.identity import HostLock, is_held
from heron_runtime.files import replace_file

LOOK_EVERY_SECS = 1.0
PROGRAMS = 8  # programs whose workers are kept; beyond it, all workers are ended
LOG_BYTES = 64 * 1024 * 1024
TAKEN = 3  # exit code: another keeper is running


def main(arguments: list[str]) -> int:
    """Keep the warm Spark until it is time to end, and return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m data_pipeline.shell.keeper")
    parser.add_argument("--master", required=True)
    parser.add_argument("--conf", action="append", default=[])
    parser.add_argument("--idle-seconds", type=float, required=True)
    given = parser.parse_args(arguments)
    where = warm.places()
    if not HostLock(where.keeper).acquire("keeper"):
        return TAKEN
    over = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: over.set())
    where.record.unlink(missing_ok=True)
    where.unsettled.unlink(missing_ok=True)
    warm.forget_code()
    conf = dict(pair.partition("=")[::2] for pair in given.conf)
    with own_session(SessionOptions("heronry-warm", given.master, conf)) as spark:
        _load_classes(spark)
        gateway: Any = spark.sparkContext._gateway
        ours = Warm(
            os.getpid(), gateway.java_parameters.port, gateway.java_parameters.auth_token, given.master, conf,
            str(where.log), time.time(), given.idle_seconds, warm.versions(),
        )  # fmt: skip
        replace_file(where.record, ours.to_json(), 0o600)
        try:
            sys.stderr.write(f"ends: {_keep(spark, gateway.proc, ours, where, over)}\n")  # goes to its log
        finally:
            if _recorded(where) == ours:
                where.record.unlink(missing_ok=True)
    return 0


def _load_classes(spark: SparkSession) -> None:
    """Load, and partly compile, the classes that every job needs before the first job."""

    def same(batches: Iterator[Any]) -> Iterator[Any]:
        yield from batches

    for _ in range(2):
        spark.range(1_000).mapInArrow(same, "id long").groupBy("id").count().collect()


def _keep(spark: SparkSession, jvm: Any, ours: Warm, where: Places, over: threading.Event) -> str:
    """Watch the warm Spark, and return the reason for its end."""
    while not over.wait(LOOK_EVERY_SECS):
        if jvm.poll() is not None:
            return f"the JVM has ended with {jvm.returncode}"
        if _recorded(where) != ours:
            return f"{where.record} is missing"
        if not is_held(where.job):
            last = max(ours.started, where.job.stat().st_mtime if where.job.exists() else 0.0)
            if ours.idle_seconds and time.time() - last > ours.idle_seconds:
                return f"no job for {ours.idle_seconds:g} seconds"
            _tidy(spark, jvm, where)
    return "it was requested"


def _tidy(spark: SparkSession, jvm: Any, where: Places) -> None:
    """Clean up leftovers of a killed job, workers of too many programs, and a log that is too long."""
    daemons = [child for child in psutil.Process(jvm.pid).children() if "pyspark.daemon" in " ".join(_command(child))]
    too_long = where.log.exists() and where.log.stat().st_size > LOG_BYTES
    if not (where.unsettled.exists() or len(daemons) > PROGRAMS or too_long):
        return
    lock = HostLock(where.job)
    at = where.job.stat().st_mtime if where.job.exists() else time.time()
    if not lock.acquire("keeper"):
        return
    try:
        if where.unsettled.exists():
            warm.settle(spark)
        if len(daemons) > PROGRAMS:
            with contextlib.suppress(Py4JError):  # another version of Spark: keep the workers
                warm.end_workers(spark)
                warm.forget_code()
        if too_long:
            os.truncate(where.log, 0)
    finally:
        os.utime(where.job, (at, at))  # cleanup does not count as a job
        lock.release()


def _command(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.Error:
        return []


def _recorded(where: Places) -> Warm | None:
    with contextlib.suppress(OSError, ValueError, TypeError):
        return Warm.from_json(where.record.read_bytes())
    return None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
