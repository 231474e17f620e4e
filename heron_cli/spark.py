"""``heron spark``: a Spark that is kept warm, so that jobs need not wait for one to start.

The keeper is ``data_pipeline/shell/keeper.py``; this speaks to it through its files and signals alone.
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
from heron_cli.console import Format, age, print_json, print_line, say, size, spinner
from heron_cli.home import Home
from heron_cli.options import Output, Verbose
from heron_cli.spark_submit import check_conf, need_pyspark
from heron_control.schedulers.identity import is_held, last_holder
from heron_runtime.failures import ExistsAlready, Failure, UsageError
from heron_runtime.spawn import start_session

KEEPER = "data_pipeline.shell.keeper"
ARCHIVE = "data_pipeline.shell.class_archive"
START_SECS = 180.0
STOP_SECS = 30.0
LOOK_EVERY_SECS = 0.1
LINES = 5  # of the log, where it did not start


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
    verbose: Verbose = False,
) -> None:
    """Start a Spark and keep it warm for `heron submit spark` and `heron pipeline run`."""
    if not (master == "local" or master.startswith("local[")):
        raise UsageError(
            f"a warm Spark runs on this machine, not at {master!r}", "Write --master local[*] or local[N]."
        )
    check_conf(conf or ())
    need_pyspark()
    Home.of_user().prepare()
    where = _places()
    where.folder.mkdir(mode=0o700, exist_ok=True)
    if is_held(where.keeper):
        raise ExistsAlready(
            "a warm Spark runs already",
            "`heron spark status` shows it; `heron spark stop` ends it, for other settings.",
        )
    where.record.unlink(missing_ok=True)
    where.log.unlink(missing_ok=True)
    arguments = [
        f"--master={master}",
        f"--idle-seconds={60 * idle_minutes:g}",
        *(f"--conf={pair}" for pair in conf or ()),
    ]
    with spinner(f"starting Spark at {master}"):
        process = start_session(KEEPER, arguments, str(where.folder), where.log)
        until = time.monotonic() + START_SECS
        while (warm := _read(where)) is None:
            if process.poll() is not None:
                raise Failure(f"Spark did not start (exit code {process.returncode})", _see(where), _end_of(where.log))
            if time.monotonic() > until:
                process.terminate()
                raise Failure(f"Spark did not start within {START_SECS:g} seconds", _see(where), _end_of(where.log))
            time.sleep(LOOK_EVERY_SECS)
    rest = f"after {idle_minutes:g} minutes without a job, or by" if idle_minutes else "by"
    print_line(f"Spark is warm at {warm.master} (process {warm.pid}); it ends {rest} `heron spark stop`")


def stop(verbose: Verbose = False) -> None:
    """Stop the warm Spark and its job."""
    where = _places()
    holder = last_holder(where.keeper)
    if not is_held(where.keeper) or holder is None:
        where.record.unlink(missing_ok=True)
        say("no warm Spark runs")
        return
    with spinner("ending the warm Spark"), contextlib.suppress(psutil.NoSuchProcess):
        process = psutil.Process(holder.pid)
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(STOP_SECS)
        except psutil.TimeoutExpired:
            for child in [*process.children(recursive=True), process]:
                with contextlib.suppress(psutil.NoSuchProcess):
                    child.kill()
    where.record.unlink(missing_ok=True)
    print_line("the warm Spark has ended")


def status(output: Output = Format.TABLE, verbose: Verbose = False) -> None:
    """Print whether a warm Spark runs, its job and its resources."""
    where = _places()
    warm = _read(where) if is_held(where.keeper) else None
    if warm is None:
        state = "starting" if is_held(where.keeper) else "none"
        if output is Format.JSON:
            print_json({"state": state})
        else:
            say(
                "a warm Spark is starting"
                if state == "starting"
                else "no warm Spark runs; `heron spark start` starts one"
            )
        return
    holder = last_holder(where.job) if is_held(where.job) else None
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
    rows = [("state", f"busy, with the job of process {holder.pid}" if holder else "idle"), ("master", warm.master)]
    rows += [("process", f"{warm.pid}, for {age(time.time() - warm.started)}"), ("memory", size(memory))]
    rows += [("conf", f"{key}={value}") for key, value in sorted(warm.conf.items())]
    rows += [("versions", warm.versions), ("log", warm.log)]
    for name, text in rows:
        print_line(f"{name:<9}{text}")


def _places() -> Places:
    return Places(Home.of_user().root.absolute() / FOLDER)


def prepare(verbose: Verbose = False) -> None:
    """Create an archive of Spark's classes, which halves the CPU time of each start.

    Repeat it after Java or PySpark has changed.
    """
    need_pyspark()
    command = [sys.executable, "-m", ARCHIVE]  # a process of its own, since Spark writes where it likes
    with spinner("running small jobs, and writing down which classes they need (a minute)"):
        ended = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if ended.returncode:
        lines = [line for line in ended.stderr.splitlines() if line.strip()][-LINES:]
        raise Failure("no archive of Spark's classes was written", "Spark works without it, and starts slower.", lines)
    file = Path(ended.stdout.splitlines()[-1])
    print_line(f"Spark's classes are in {file} ({size(file.stat().st_size)})")


def _read(where: Places) -> Warm | None:
    with contextlib.suppress(OSError, ValueError, TypeError):
        return Warm.from_json(where.record.read_bytes())
    return None


def _memory_bytes(pid: int) -> int:
    """Of the keeper, its JVM and the workers."""
    total = 0
    with contextlib.suppress(psutil.NoSuchProcess):
        keeper = psutil.Process(pid)
        for process in [keeper, *keeper.children(recursive=True)]:
            with contextlib.suppress(psutil.Error):
                total += process.memory_info().rss
    return total


def _see(where: Places) -> str:
    return f"See {where.log}; `heron doctor spark` looks for Java and PySpark."


def _end_of(log: Path) -> list[str]:
    with contextlib.suppress(OSError):
        return log.read_text(errors="replace").splitlines()[-LINES:]
    return []


COMMANDS = (("start", start), ("stop", stop), ("status", status), ("prepare", prepare))
