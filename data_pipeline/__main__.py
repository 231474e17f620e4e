"""Command line of a batch job: ``python -m data_pipeline FILE [PROGRAM] --output-path URL … [-- ARGS]``.

``heron submit spark`` runs it. Data goes to stdout, messages go to stderr. Spark's own log goes to a file that is named
when an error occurs. Exit codes are those of the ``heron`` command.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import logging
import os
import shutil
import signal
import stat
import sys
import tempfile
import threading
import traceback
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TextIO

import psutil

from data_pipeline.shell.spoken import heard
from heron_runtime.failures import Failure, Unavailable, to_failure
from heron_runtime.process import EXIT_PARENT_GONE

TEMPORARY = "heronry-spark-"  # prefix of the folders of jobs
LOCK = "lock"  # lock file that the folder's owner holds for its lifetime
CAUSED = "Caused by: "  # in Java's stack traces
CHILDREN_SECS = 10.0  # a JVM removes its temporary folders when it is asked to end
_OWN_FOLDERS: list[str] = []  # made by this process for its own use


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """Parse the options of a command line. Ends the process with exit code 2 on a mistake."""
    cut = list(arguments).index("--") if "--" in arguments else len(arguments)
    parser = argparse.ArgumentParser(prog="python -m data_pipeline", description="A streamlet program on Spark.")
    parser.add_argument("file", type=Path)
    parser.add_argument("program", nargs="?")
    parser.add_argument("--input-path", action="append", default=[], metavar="[STEP=]URL")
    parser.add_argument("--input-format", default="", choices=["", "text", "json", "csv", "parquet", "orc", "archive"])
    parser.add_argument("--output-path", default="", metavar="URL")
    parser.add_argument("--from-ms", type=int)
    parser.add_argument("--to-ms", type=int)
    parser.add_argument("--master", default="local[*]")
    parser.add_argument("--conf", action="append", default=[], metavar="spark.KEY=VALUE")
    parser.add_argument("--config-property", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--replace", action="store_true")
    parser.add_argument("--dry-run", action="store_true")
    parser.add_argument("--views", action="store_true", help="publish the program's views instead of its other sinks")
    parser.add_argument("--force", action="store_true", help="allow T beyond the progress of the online layer")
    parser.add_argument("--since-last", action="store_true", help="begin where the views' last batch ends")
    parser.add_argument("--checkpoint", default="", metavar="URL", help="process micro-batches from this checkpoint")
    parser.add_argument("--every-seconds", type=float, help="interval of micro-batches, until interrupted")
    parser.add_argument("--files", type=int, help="most files of each source in a micro-batch")
    parser.add_argument("--roll-up", action="store_true", help="FILE is a folder of histories: roll them up")
    parser.add_argument("--keep-days", action="append", default=[], metavar="LEVEL=DAYS")
    parser.add_argument("--audit", action="append", default=[], type=Path, metavar="FILE")
    parser.add_argument("--lifeline", type=int, default=-1, help="file descriptor that ends with the parent")
    parser.add_argument("--verbose", action="store_true", help="Spark's log on stderr, and Python tracebacks")
    options = parser.parse_args(list(arguments)[:cut])
    options.arguments = tuple(list(arguments)[cut + 1 :])
    if not (options.output_path or options.dry_run or options.views or options.roll_up):
        parser.error("--output-path is missing")
    return options


def main(arguments: Sequence[str]) -> int:
    """Run the job and return the exit code."""
    options = parse(arguments)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _interrupted)
    _watch_lifeline(options.lifeline)
    with _talk(options.verbose) as (out, log):
        try:
            text = _run(options, out)
        except KeyboardInterrupt:
            out.write("heron: interrupted: nothing was written\n")
            _tidy_up()
            return 130
        except Exception as error:
            return _report(error, out, log, options.verbose)
        finally:
            _end_children()  # after reporting the error, as the JVM holds its text
    _answer(text)
    _tidy_up()
    return 0


def _answer(text: str) -> None:
    """Print the command's answer, and ignore a closed pipe."""
    try:
        print(text, flush=True)  # noqa: T201  # the command's answer
    except BrokenPipeError:
        # The reader has closed the pipe. Keep Python from reporting that at its exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _run(options: argparse.Namespace, out: TextIO) -> str:
    try:
        if options.roll_up:
            return _roll_up(options, out)
        from data_pipeline.shell.job import run
        from data_pipeline.shell.request import FILES, Request, Streaming
        from heronry.api.config_values import own_values
    except ModuleNotFoundError as error:
        if error.name in ("pyspark", "pyarrow", "pandas", "py4j"):
            raise Unavailable(
                f"programs on Spark need {error.name}, which is not installed", "Run: pip install 'heronry[spark]'"
            ) from None
        raise
    streaming = None
    if options.checkpoint:
        streaming = Streaming(options.checkpoint, options.every_seconds, options.files or FILES)
    request = Request(
        options.file, options.program, options.arguments, tuple(options.input_path), options.input_format,
        options.output_path, options.from_ms, options.to_ms, options.master,
        dict(pair.partition("=")[::2] for pair in options.conf), options.replace, options.dry_run, options.views,
        own_values(options.config_property), options.force, streaming,
        options.since_last,
    )  # fmt: skip
    return run(request, out)


def _roll_up(options: argparse.Namespace, out: TextIO) -> str:
    from data_pipeline.core.history import KEEP_DAYS
    from data_pipeline.shell.history import RollUp, run

    keep = {**KEEP_DAYS, **{level: int(days) for level, _, days in (p.partition("=") for p in options.keep_days)}}
    conf = dict(pair.partition("=")[::2] for pair in options.conf)
    records = tuple(path.absolute() for path in options.audit)
    return run(RollUp(options.file.absolute(), options.master, conf, keep, records), out)


def _report(error: Exception, out: TextIO, log: Path | None, verbose: bool) -> int:
    """Report the error and return the exit code."""
    if verbose:
        traceback.print_exception(error, file=out)
    known = _known(error)
    for detail in known.details:
        out.write(f"{detail.rstrip()}\n")
    out.write(f"heron: {known.message}\n")
    cure = known.cure or (_where_the_log_is(log) if log is not None and known.exit_code == 1 else "")
    if cure:
        out.write(f"{cure}\n")
    if not cure.endswith(f" {log}"):
        _tidy_up()
    else:
        _keep_log()
    return known.exit_code


def _where_the_log_is(log: Path) -> str:
    """Return a sentence that names Spark's log: that of the warm Spark if this process has none."""
    if log.stat().st_size:
        return f"Spark's log is {log}"
    with contextlib.suppress(ImportError):
        from data_pipeline.shell import warm

        archive = warm.found()
        return f"Spark's log is {archive.log}" if archive is not None else ""
    return ""


def _known(error: Exception) -> Failure:
    from data_pipeline.core.decode import plain_path
    from data_pipeline.core.failure import failure_in

    failure = failure_in(str(error))
    if failure is not None:
        failure = replace(failure, file=plain_path(failure.file))
        return Failure(str(failure), "Fix the function, or filter such records out.", [failure.traceback])
    if "JAVA_GATEWAY_EXITED" in str(error):
        return Unavailable("Java did not start", "Install Java 17 or newer (deploy/java-setup), or set JAVA_HOME.")
    known = to_failure(error)
    if known is not None:
        return known
    if _is_sparks(error):
        return Failure(f"Spark gave up: {_first_line(error)}")
    return Failure(
        f"fault in Heronry: {type(error).__name__}: {error}", "Run it again with --verbose; please report it."
    )


def _is_sparks(error: Exception) -> bool:
    return type(error).__module__.partition(".")[0] in ("pyspark", "py4j")


def _first_line(error: Exception) -> str:
    """Return the first informative line (Py4J begins with the call), and the innermost cause."""
    lines = [line.strip().removeprefix(": ") for line in str(error).splitlines()]
    messages = [line for line in lines if line and not line.startswith("An error occurred while calling")]
    causes = [line.removeprefix(CAUSED) for line in lines if line.startswith(CAUSED)]
    cause = f" ({causes[-1][:300]})" if causes and causes[-1] not in messages[0] else ""
    return messages[0][:500] + cause if messages else type(error).__name__


@contextlib.contextmanager
def _talk(verbose: bool) -> Iterator[tuple[TextIO, Path | None]]:
    """Provide the stream for messages, and the file of Spark's stderr; JVM and workers inherit descriptor 2."""
    folder = _own_folder()
    if verbose:
        yield sys.stderr, None
        return
    name = os.path.join(folder, "spark.log")
    number = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    terminal = os.dup(2)
    os.dup2(number, 2)
    os.close(number)
    try:
        with os.fdopen(os.dup(terminal), "w") as out, heard(Path(name), out):
            yield out, Path(name)
    finally:
        os.dup2(terminal, 2)
        os.close(terminal)


def _open_plainly(path: str, flags: int) -> int:
    """Open without following a link, and without waiting for the other end of a pipe."""
    return os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK)


def _own_folder() -> str:
    """Make one folder for all temporary files of this process, so that they are removed however it ends.

    Folders of killed processes, whose locks are free, are removed.
    """
    for lock in Path(tempfile.gettempdir()).glob(f"{TEMPORARY}*/{LOCK}"):
        # The folder is shared: another user may have put a pipe or a link there.
        with contextlib.suppress(OSError), open(lock, "rb", opener=_open_plainly) as file:
            status = os.fstat(file.fileno())
            if status.st_uid == os.getuid() and stat.S_ISREG(status.st_mode):
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(lock.parent, ignore_errors=True)
    folder = tempfile.mkdtemp(prefix=TEMPORARY)
    _OWN_FOLDERS.append(folder)
    tempfile.tempdir = folder
    fcntl.flock(os.open(os.path.join(folder, LOCK), os.O_RDONLY | os.O_CREAT | os.O_CLOEXEC, 0o600), fcntl.LOCK_EX)
    return folder


def _end_children() -> None:
    """End all child processes; a JVM that is interrupted while it starts would not notice that its driver has ended."""
    # Py4J's threads may be releasing objects in the JVM, and their connection errors are expected.
    threading.excepthook = _unless_py4j
    logging.getLogger().addFilter(is_news)  # Py4J also logs there
    children = psutil.Process().children(recursive=True)
    for child in children:
        with contextlib.suppress(psutil.NoSuchProcess):
            child.terminate()
    _, alive = psutil.wait_procs(children, timeout=CHILDREN_SECS)
    for child in alive:
        with contextlib.suppress(psutil.NoSuchProcess):
            child.kill()


def _unless_py4j(caught: threading.ExceptHookArgs) -> None:
    if not _is_py4js(caught.exc_type):
        threading.__excepthook__(caught)


def is_news(record: logging.LogRecord) -> bool:
    """Return False for an exception of Py4J."""
    kind = record.exc_info[0] if record.exc_info else None
    return kind is None or not _is_py4js(kind)


def _is_py4js(kind: type[BaseException]) -> bool:
    return kind.__module__.partition(".")[0] == "py4j"


def _tidy_up() -> None:
    """Remove all temporary files, including Spark's log."""
    for folder in _OWN_FOLDERS:
        shutil.rmtree(folder, ignore_errors=True)


def _keep_log() -> None:
    """Remove the lock files, so that later runs do not remove the log that was named."""
    for folder in _OWN_FOLDERS:
        with contextlib.suppress(OSError):
            os.unlink(os.path.join(folder, LOCK))


def _interrupted(*_: object) -> None:
    """End the job at the first signal, and ignore later ones so that they do not disturb the cleanup."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    raise KeyboardInterrupt


def _watch_lifeline(lifeline: int) -> None:
    """End with the parent process; the JVM ends when our end of its pipe is closed."""
    if lifeline < 0:
        return

    def wait() -> None:
        with contextlib.suppress(OSError):
            os.read(lifeline, 1)
        _end_children()
        _tidy_up()
        os._exit(EXIT_PARENT_GONE)

    threading.Thread(target=wait, name="lifeline", daemon=True).start()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
