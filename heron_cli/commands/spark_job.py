"""``heron submit spark``: a program as a Spark job, in a process of its own (``python -m data_pipeline``).

This module never imports PySpark. It checks the options, starts the process with a lifeline, and exits with its exit
code.
"""

from __future__ import annotations

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

from heron_cli.clusters import SPARK
from heron_cli.console import is_verbose
from heron_cli.options import parse_instant
from heron_runtime.failures import Failure, NotFound, Unavailable, UsageError
from heron_runtime.spawn import child_environment

STOP_SECS = 20.0
FORMATS = ("text", "json", "csv", "parquet", "orc", "archive")
NEEDED_PACKAGES = ("pyspark", "pyarrow", "pandas")
STREAMING = "streaming"
MODES = ("batch", STREAMING)
AVAILABLE_NOW, PROCESSING_TIME = "available-now", "processing-time"


@dataclass(frozen=True)
class SparkSubmitOptions:
    """Options of ``heron submit`` that a Spark job uses, as typed. Each has the name of the command's parameter."""

    input_path: Sequence[str] = ()
    input_format: str = ""
    output_path: str = ""
    from_: str = ""
    to: str = ""
    master: str = ""
    conf: Sequence[str] = ()
    config_property: Sequence[str] = ()  # configuration of the program, also used by other clusters
    mode: str = ""
    trigger: str = ""
    checkpoint: str = ""

    @classmethod
    def of(cls, parameters: Mapping[str, Any]) -> SparkSubmitOptions:
        """Return the options among the parameters of the command. Omitted ones have their defaults."""
        return cls(**{field.name: parameters[field.name] for field in fields(cls) if parameters[field.name]})


ONLY_SPARK = frozenset(field.name for field in fields(SparkSubmitOptions)) - {"config_property"}
SHARED = frozenset({"place", "file", "topology", "arguments", "config_property", "dry_run", "replace", "verbose"})


def reject_unused_options(cluster: str, given: Mapping[str, str]) -> None:
    """Reject options that have no effect on the cluster.

    Args:
        cluster: Cluster of the submit.
        given: Parameters of the command that were typed, with the flag of each.

    Raises:
        UsageError: An option has no effect.
    """
    if cluster == SPARK:
        unused = [flag for name, flag in given.items() if name not in ONLY_SPARK | SHARED]
    else:
        unused = [flag for name, flag in given.items() if name in ONLY_SPARK]
    if unused:
        spark = f"for `heron submit {SPARK}`"
        where = f"not {spark}" if cluster == SPARK else f"{spark}, not for {cluster}"
        raise UsageError(f"{unused[0]} is {where}", "Leave it out.")


def submit_spark_job(
    file: Path,
    program: str | None,
    arguments: Sequence[str],
    options: SparkSubmitOptions,
    *,
    dry_run: bool,
    replace: bool,
) -> None:
    """Run a job to its end, and exit with its exit code if that is not 0.

    Raises:
        UsageError: An option is invalid.
        NotFound: The file does not exist.
        Unavailable: PySpark is not installed.
    """
    if not options.output_path and not dry_run:
        raise UsageError("--output-path is missing", "Add the folder of the result, or a URL that Spark can write.")
    flags = ["--output-path", options.output_path] if options.output_path else []
    flags += streaming_flags(options)
    flags += ["--dry-run"] if dry_run else []
    flags += ["--replace"] if replace else []
    run_job(file, program, arguments, options, flags)


def streaming_flags(options: SparkSubmitOptions) -> list[str]:
    """Return the flags of ``python -m data_pipeline`` for a streaming run. Raises UsageError."""
    if options.mode not in ("", *MODES):
        raise UsageError(f"unknown --mode {options.mode!r}", f"Write {' or '.join(MODES)}.")
    if options.mode != STREAMING:
        given = [n for n, value in (("--trigger", options.trigger), ("--checkpoint", options.checkpoint)) if value]
        if given:
            raise UsageError(f"{given[0]} is for --mode {STREAMING}", f"Add --mode {STREAMING}, or leave it out.")
        return []
    if not options.checkpoint:
        raise UsageError("--checkpoint is missing", "Add the folder of the progress, or a URL that Spark can write.")
    flags = ["--checkpoint", options.checkpoint]
    kind, _, seconds = (options.trigger or AVAILABLE_NOW).partition("=")
    if kind == "real-time":
        raise UsageError(
            "Spark's real-time mode does not support file sources", "Run the program online: heron submit local."
        )
    if kind == PROCESSING_TIME:
        try:
            every_s = float(seconds)
        except ValueError:
            every_s = math.nan
        if not (every_s > 0 and math.isfinite(every_s)):
            raise UsageError(f"--trigger: invalid seconds in {options.trigger!r}", f"Write {PROCESSING_TIME}=10.")
        return [*flags, f"--every-seconds={every_s:g}"]
    if options.trigger not in ("", AVAILABLE_NOW):
        raise UsageError(
            f"unknown --trigger {options.trigger!r}", f"Write {AVAILABLE_NOW} or {PROCESSING_TIME}=SECONDS."
        )
    return flags


def run_job(
    file: Path, program: str | None, arguments: Sequence[str], options: SparkSubmitOptions, flags: Sequence[str]
) -> None:
    """Run ``python -m data_pipeline`` to its end with `flags` and the flags of `options`.

    Raises as ``submit_spark_job``.
    """
    if not file.exists():
        raise NotFound(f"{file} does not exist", "FILE is a .py file, a package folder, .zip or .tar.gz.")
    if options.input_format and options.input_format not in FORMATS:
        raise UsageError(f"unknown --input-format {options.input_format!r}", f"Write {', '.join(FORMATS)}.")
    from heronry.api.config_values import own_values
    from heronry.streamlet.aside import (  # imported here, since other submits do not need streamlets
        MOST,
        ON_ERROR,
        policy_of,
    )

    given = own_values(options.config_property)
    policy_of(given)
    unknown = [key for key in given if key not in (ON_ERROR, MOST)]
    if unknown:
        raise UsageError(f"{unknown[0]!r} has no effect on a batch", f"A batch uses {ON_ERROR} and {MOST}.")
    check_spark_properties(options.conf)
    from_ms, to_ms = parse_instant("--from", options.from_), parse_instant("--to", options.to)
    if from_ms is not None and to_ms is not None and from_ms >= to_ms:
        raise UsageError(
            "--from is not before --to", "A record is read if its event time is at least --from and below --to."
        )
    require_pyspark()
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
    """Run a job to its end, and exit with its exit code if that is not 0. Raises Failure if it was killed."""
    code = _run(command)
    if code < 0:
        raise job_killed_error(-code)
    if code:
        raise typer.Exit(code)


def check_spark_properties(pairs: Sequence[str]) -> None:
    """Check the form ``spark.KEY=VALUE``. Raises UsageError."""
    for pair in pairs:
        if not pair.startswith("spark.") or "=" not in pair:
            raise UsageError(f"--conf: {pair!r} is not a property of Spark", "Write --conf spark.KEY=VALUE.")


def job_killed_error(number: int) -> Failure:
    """Return the error for a job that a signal has killed."""
    name = signal.Signals(number).name if number in set(signal.Signals) else f"signal {number}"
    return Failure(
        f"the process of the job was killed by {name}; it has not written a result",
        "SIGKILL usually means that the machine or container is out of memory: see the kernel log, add memory, or "
        "lower spark.driver.memory. The next run removes the files of this one."
        if number == signal.SIGKILL
        else "Run it again with --verbose for the messages of Spark.",
    )


def require_pyspark() -> None:
    """Check that PySpark and its companions are installed. Raises Unavailable."""
    missing = [name for name in NEEDED_PACKAGES if importlib.util.find_spec(name) is None]
    if missing:
        raise Unavailable(
            f"programs on Spark need {', '.join(missing)}, which is not installed", "Run: pip install 'heronry[spark]'"
        )


def _run(command: Sequence[str]) -> int:
    """Run a job and return its exit code.

    The job holds the read end of a pipe, so it ends when this process ends for any reason.
    """
    reader, writer = os.pipe()
    cut = command.index("--")
    with_lifeline = [*command[:cut], f"--lifeline={reader}", *command[cut:]]
    process = subprocess.Popen(with_lifeline, pass_fds=[reader], env=child_environment(), stdin=subprocess.DEVNULL)
    os.close(reader)
    try:
        return process.wait()
    except KeyboardInterrupt:
        try:  # a terminal interrupts both processes, but a signal may have reached only this one
            process.send_signal(signal.SIGTERM)
            return process.wait(STOP_SECS) or 130
        except subprocess.TimeoutExpired:
            return 130
    finally:
        os.close(writer)
        process.wait()
