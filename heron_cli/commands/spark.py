"""``heron spark``: a Spark process that is kept warm, so that jobs start sooner.

The keeper is ``data_pipeline/shell/keeper.py``. This module controls it by its files and by signals only.
"""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import psutil
import typer

from data_pipeline.core.warm import FOLDER, Places, Warm
from heron_cli.commands.spark_job import check_spark_properties, require_pyspark
from heron_cli.console import Format, format_age, format_bytes, print_json, print_line, print_message, spinner
from heron_cli.home import Home
from heron_cli.options import OutputOption, VerboseOption
from heron_control.schedulers.identity import is_held, last_holder
from heron_runtime.failures import ExistsAlready, Failure, UsageError
from heron_runtime.spawn import start_session

KEEPER = "data_pipeline.shell.keeper"
ARCHIVE = "data_pipeline.shell.class_archive"
START_SECS = 180.0
STOP_SECS = 30.0
POLL_SECS = 0.1
LOG_LINES = 5  # of the log of a failed start


def start(
    master: Annotated[str, typer.Option(help="local, local[N] or local[*].")] = "local[*]",
    conf: Annotated[
        list[str] | None,
        typer.Option(
            "--conf", metavar="spark.KEY=VALUE", help="Property, for example spark.driver.memory=4g. Repeatable."
        ),
    ] = None,
    idle_minutes: Annotated[
        float, typer.Option(min=0.0, metavar="MINUTES", help="Stop after this time without a job. 0: never.")
    ] = 60.0,
    verbose: VerboseOption = False,
) -> None:
    """Start a Spark and keep it warm for `heron submit spark` and `heron pipeline run`.

    Example: heron spark start --master local[4]
    """
    if not (master == "local" or master.startswith("local[")):
        raise UsageError(
            f"--master {master!r}: a warm Spark runs on this machine", "Write --master local[*] or local[N]."
        )
    check_spark_properties(conf or ())
    require_pyspark()
    Home.of_user().prepare()
    files = _keeper_files()
    files.folder.mkdir(mode=0o700, exist_ok=True)
    if is_held(files.keeper):
        raise ExistsAlready(
            "a warm Spark is already running",
            "`heron spark status` shows it. Run `heron spark stop` first for other settings.",
        )
    files.record.unlink(missing_ok=True)
    files.log.unlink(missing_ok=True)
    arguments = [
        f"--master={master}",
        f"--idle-seconds={60 * idle_minutes:g}",
        *(f"--conf={pair}" for pair in conf or ()),
    ]
    with spinner(f"starting Spark at {master}"):
        process = start_session(KEEPER, arguments, str(files.folder), files.log)
        until = time.monotonic() + START_SECS
        while (warm := _read(files)) is None:
            if process.poll() is not None:
                raise Failure(
                    f"Spark did not start (exit code {process.returncode})", _advise(files), _last_lines(files.log)
                )
            if time.monotonic() > until:
                process.terminate()
                raise Failure(
                    f"Spark did not start within {START_SECS:g} seconds", _advise(files), _last_lines(files.log)
                )
            time.sleep(POLL_SECS)
    rest = f"after {idle_minutes:g} minutes without a job, or by" if idle_minutes else "by"
    print_line(f"Spark is warm at {warm.master} (process {warm.pid}); it stops {rest} `heron spark stop`")


def stop(verbose: VerboseOption = False) -> None:
    """Stop the warm Spark and its job.

    Example: heron spark stop
    """
    files = _keeper_files()
    holder = last_holder(files.keeper)
    if not is_held(files.keeper) or holder is None:
        files.record.unlink(missing_ok=True)
        print_message("no warm Spark is running")
        return
    with spinner("stopping the warm Spark"), contextlib.suppress(psutil.NoSuchProcess):
        process = psutil.Process(holder.pid)
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(STOP_SECS)
        except psutil.TimeoutExpired:
            for child in [*process.children(recursive=True), process]:
                with contextlib.suppress(psutil.NoSuchProcess):
                    child.kill()
    files.record.unlink(missing_ok=True)
    print_line("the warm Spark has stopped")


def status(output: OutputOption = Format.TABLE, verbose: VerboseOption = False) -> None:
    """Print whether a warm Spark runs, its job and its resources.

    Example: heron spark status
    """
    files = _keeper_files()
    warm = _read(files) if is_held(files.keeper) else None
    if warm is None:
        state = "starting" if is_held(files.keeper) else "none"
        if output is Format.JSON:
            print_json({"state": state})
        else:
            print_message(
                "a warm Spark is starting"
                if state == "starting"
                else "no warm Spark is running; `heron spark start` starts one"
            )
        return
    holder = last_holder(files.job) if is_held(files.job) else None
    memory = _memory_bytes(warm.pid)
    if output is Format.JSON:
        print_json(
            {
                "state": "busy" if holder else "idle", "master": warm.master, "pid": warm.pid,
                "started": datetime.fromtimestamp(warm.started, UTC).isoformat(timespec="seconds"),
                "job_pid": holder.pid if holder else None, "memory_bytes": memory, "conf": dict(warm.conf),
                "idle_seconds": warm.idle_seconds, "log": warm.log, "versions": warm.versions,
            }
        )  # fmt: skip
        return
    rows = [("state", f"busy with the job of process {holder.pid}" if holder else "idle"), ("master", warm.master)]
    rows += [("process", f"{warm.pid}, for {format_age(time.time() - warm.started)}"), ("memory", format_bytes(memory))]
    rows += [("conf", f"{key}={value}") for key, value in sorted(warm.conf.items())]
    rows += [("versions", warm.versions), ("log", warm.log)]
    for name, text in rows:
        print_line(f"{name:<9}{text}")


def _keeper_files() -> Places:
    return Places(Home.of_user().root.absolute() / FOLDER)


def prepare(verbose: VerboseOption = False) -> None:
    """Create an archive of Spark's classes, which halves the CPU time of each start.

    Repeat it after Java or PySpark has changed.

    Example: heron spark prepare
    """
    require_pyspark()
    command = [sys.executable, "-m", ARCHIVE]  # a process of its own, since Spark writes to the working folder
    with spinner("running small jobs to record the classes they load (about a minute)"):
        ended = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if ended.returncode:
        lines = [line for line in ended.stderr.splitlines() if line.strip()][-LOG_LINES:]
        raise Failure(
            "the archive of Spark's classes was not written", "Spark works without it, but starts more slowly.", lines
        )
    file = Path(ended.stdout.splitlines()[-1])
    print_line(f"Spark's classes are in {file} ({format_bytes(file.stat().st_size)})")


def _read(files: Places) -> Warm | None:
    with contextlib.suppress(OSError, ValueError, TypeError):
        return Warm.from_json(files.record.read_bytes())
    return None


def _memory_bytes(pid: int) -> int:
    """Return the memory of the keeper, its JVM and the workers."""
    total = 0
    with contextlib.suppress(psutil.NoSuchProcess):
        keeper = psutil.Process(pid)
        for process in [keeper, *keeper.children(recursive=True)]:
            with contextlib.suppress(psutil.Error):
                total += process.memory_info().rss
    return total


def _advise(files: Places) -> str:
    return f"See {files.log}, and run `heron doctor spark` to check Java and PySpark."


def _last_lines(log: Path) -> list[str]:
    with contextlib.suppress(OSError):
        return log.read_text(errors="replace").splitlines()[-LOG_LINES:]
    return []
