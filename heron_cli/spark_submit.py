"""``heron submit spark``: a program over history, as a job in a process of its own (``python -m data_pipeline``).

The command itself never imports PySpark. It checks what can be checked without, starts the process, gives it a lifeline
and ends with its exit code.
"""

from __future__ import annotations

import datetime as dt
import importlib.util
import math
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import typer

from heron_cli.address import SPARK
from heron_cli.console import is_verbose
from heron_runtime.failures import Failure, NotFound, Unavailable, UsageError
from heron_runtime.spawn import child_environment

STOP_SECS = 20.0
FORMATS = ("text", "json", "csv", "parquet", "orc", "archive")
NEEDED = ("pyspark", "pyarrow", "pandas")
STREAMING = "streaming"
MODES = ("batch", STREAMING)
AVAILABLE_NOW, PROCESSING_TIME = "available-now", "processing-time"


@dataclass(frozen=True)
class SparkOptions:
    """The options of ``heron submit`` that a job on Spark reads, as typed. Each is named as the command's parameter."""

    input_path: Sequence[str] = ()
    input_format: str = ""
    output_path: str = ""
    from_: str = ""
    to: str = ""
    master: str = ""
    conf: Sequence[str] = ()
    config_property: Sequence[str] = ()  # every cluster has these: the program's configuration
    mode: str = ""
    trigger: str = ""
    checkpoint: str = ""

    @classmethod
    def of(cls, parameters: Mapping[str, Any]) -> SparkOptions:
        """Return the options among the parameters of the command; those that were left out have their defaults."""
        return cls(**{field.name: parameters[field.name] for field in fields(cls) if parameters[field.name]})


ONLY_SPARK = frozenset(field.name for field in fields(SparkOptions)) - {"config_property"}
SHARED = frozenset({"place", "file", "topology", "arguments", "config_property", "dry_run", "replace", "verbose"})


def check_unused(cluster: str, given: Mapping[str, str]) -> None:
    """Refuse every option that the cluster does not read.

    Args:
        cluster: the cluster that is submitted to.
        given: the parameters of ``heron submit`` that were typed, with the flag of each.

    Raises:
        UsageError: one of them has no effect there.
    """
    if cluster == SPARK:
        unused = [flag for name, flag in given.items() if name not in ONLY_SPARK | SHARED]
    else:
        unused = [flag for name, flag in given.items() if name in ONLY_SPARK]
    if unused:
        spark = f"for `heron submit {SPARK}`"
        where = f"not {spark}" if cluster == SPARK else f"{spark}, not for {cluster}"
        raise UsageError(f"{unused[0]} is {where}", "Leave it out.")


def submit_to_spark(
    file: Path, program: str | None, arguments: Sequence[str], options: SparkOptions, *, dry_run: bool, replace: bool
) -> None:
    """Run the job to its end. Raises UsageError, NotFound, Unavailable; ends the command with the job's exit code."""
    if not options.output_path and not dry_run:
        raise UsageError("--output-path is missing", "Say where the result goes: a folder, or a URL Spark can write.")
    flags = ["--output-path", options.output_path] if options.output_path else []
    flags += streaming_flags(options)
    flags += ["--dry-run"] if dry_run else []
    flags += ["--replace"] if replace else []
    run_job(file, program, arguments, options, flags)


def streaming_flags(options: SparkOptions) -> list[str]:
    """Of ``python -m data_pipeline``. Raises UsageError."""
    if options.mode not in ("", *MODES):
        raise UsageError(f"--mode {options.mode!r} is unknown", f"Write {' or '.join(MODES)}.")
    if options.mode != STREAMING:
        given = [n for n, value in (("--trigger", options.trigger), ("--checkpoint", options.checkpoint)) if value]
        if given:
            raise UsageError(f"{given[0]} is for --mode {STREAMING}", f"Add --mode {STREAMING}, or leave it out.")
        return []
    if not options.checkpoint:
        raise UsageError(
            "--checkpoint is missing", "Say where what was read is kept: a folder, or a URL Spark can write."
        )
    flags = ["--checkpoint", options.checkpoint]
    kind, _, seconds = (options.trigger or AVAILABLE_NOW).partition("=")
    if kind == "real-time":
        raise UsageError(
            "Spark's real-time mode reads no files, and so none of these programs", "Run it online: heron submit local."
        )
    if kind == PROCESSING_TIME:
        try:
            every_s = float(seconds)
        except ValueError:
            every_s = math.nan
        if not (every_s > 0 and math.isfinite(every_s)):
            raise UsageError(f"--trigger {options.trigger!r} has no seconds", f"Write {PROCESSING_TIME}=10.")
        return [*flags, f"--every-seconds={every_s:g}"]
    if options.trigger not in ("", AVAILABLE_NOW):
        raise UsageError(
            f"--trigger {options.trigger!r} is unknown", f"Write {AVAILABLE_NOW} or {PROCESSING_TIME}=SECONDS."
        )
    return flags


def run_job(
    file: Path, program: str | None, arguments: Sequence[str], options: SparkOptions, flags: Sequence[str]
) -> None:
    """The command line of ``python -m data_pipeline``, and its end. Raises as ``submit_to_spark``."""
    if not file.exists():
        raise NotFound(f"{file} is not there", "FILE is a .py file, a package folder, .zip or .tar.gz.")
    if options.input_format and options.input_format not in FORMATS:
        raise UsageError(f"--input-format {options.input_format!r} is unknown", f"Write {', '.join(FORMATS)}.")
    from heronry.api.config_values import own_values
    from heronry.streamlet.aside import MOST, ON_ERROR, policy_of  # here, since no other submit needs streamlets

    given = own_values(options.config_property)
    policy_of(given)
    unknown = [key for key in given if key not in (ON_ERROR, MOST)]
    if unknown:
        raise UsageError(
            f"{unknown[0]!r} means nothing in a batch", f"Of a configuration it reads {ON_ERROR} and {MOST}."
        )
    check_conf(options.conf)
    from_ms, to_ms = milliseconds("--from", options.from_), milliseconds("--to", options.to)
    if from_ms is not None and to_ms is not None and from_ms >= to_ms:
        raise UsageError("--from is not before --to", "They bound event time: from the first up to below the second.")
    need_pyspark()
    command = [sys.executable, "-P", "-m", "data_pipeline", str(file), *([program] if program else []), *flags]
    for name, values in (
        ("--input-path", options.input_path), ("--conf", options.conf), ("--config-property", options.config_property),
    ):  # fmt: skip
        command += [part for value in values for part in (name, value)]
    for name, value in (
        ("--input-format", options.input_format), ("--master", options.master),
        ("--from-ms", from_ms), ("--to-ms", to_ms),
    ):  # fmt: skip
        command += [f"{name}={value}"] if value not in (None, "") else []
    command += ["--verbose"] if is_verbose() else []
    run_process([*command, "--", *arguments])


def run_process(command: Sequence[str]) -> None:
    """Run a job to its end; ends the command with the job's exit code. Raises Failure for one that was killed."""
    code = _run(command)
    if code < 0:
        raise killed(-code)
    if code:
        raise typer.Exit(code)


def check_conf(pairs: Sequence[str]) -> None:
    """Raises UsageError for what is no setting of Spark."""
    for pair in pairs:
        if not pair.startswith("spark.") or "=" not in pair:
            raise UsageError(f"--conf {pair!r} is no setting of Spark", "Write --conf spark.KEY=VALUE.")


def killed(number: int) -> Failure:
    """The job's process was ended by a signal, so it could say nothing itself."""
    name = signal.Signals(number).name if number in set(signal.Signals) else f"signal {number}"
    return Failure(
        f"the job's process was ended from outside, by {name}; it has written no result",
        "SIGKILL is most often a machine or a container without memory left: see its kernel's log, give it more, or "
        "lower spark.driver.memory. What the job left behind is removed by the next run."
        if number == signal.SIGKILL
        else "Run it again; --verbose shows what Spark says.",
    )


def need_pyspark() -> None:
    """Raises Unavailable with the cure if the extra is not installed."""
    missing = [name for name in NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        raise Unavailable(
            f"programs on Spark need {', '.join(missing)}, which is not installed", "Run: pip install 'heronry[spark]'"
        )


def milliseconds(option: str, text: str) -> int | None:
    """An instant (ISO 8601, UTC where it has no zone, or seconds since 1970) in ms. Raises UsageError."""
    if not text:
        return None
    try:
        number = float(text)
    except ValueError:
        pass
    else:
        if math.isfinite(number):
            return round(number * 1000)
    try:
        moment = dt.datetime.fromisoformat(text)
    except ValueError:
        raise UsageError(
            f"{option} {text!r} is no instant", "Write it as 2026-11-21T07:00:00Z, or as seconds since 1970."
        ) from None
    aware = moment if moment.tzinfo is not None else moment.replace(tzinfo=dt.UTC)
    return (aware - dt.datetime(1970, 1, 1, tzinfo=dt.UTC)) // dt.timedelta(milliseconds=1)


def _run(command: Sequence[str]) -> int:
    """The exit code. The job ends when we do, however we end: it holds the read end of a pipe of ours."""
    reader, writer = os.pipe()
    cut = command.index("--")
    given = [*command[:cut], f"--lifeline={reader}", *command[cut:]]
    process = subprocess.Popen(given, pass_fds=[reader], env=child_environment(), stdin=subprocess.DEVNULL)
    os.close(reader)
    try:
        return process.wait()
    except KeyboardInterrupt:
        try:  # a terminal has interrupted both of us; a signal to us alone has to be passed on
            process.send_signal(signal.SIGTERM)
            return process.wait(STOP_SECS) or 130
        except subprocess.TimeoutExpired:
            return 130
    finally:
        os.close(writer)
        process.wait()
