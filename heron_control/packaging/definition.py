"""Definition of a topology, obtained without importing the user's code into this process.

A sub-process (``heron_control.packaging.define``) imports the file. It has a time limit and no standard input, and its
output is kept apart from ours: it goes to ``show``, or into the error.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO, Any

import msgspec

from heron_control.packaging.definer import INVALID, MODULE, NOT_FOUND, OK, TopologyTraits, traits_file
from heron_runtime.failures import Failure, one_line, screenful
from heron_runtime.model.topology import TopologyDefinition
from heron_runtime.spawn import start_session
from heron_runtime.wire.errors import UNREADABLE
from heronry.api.errors import TopologyError, TopologyNotFound, UserCodeError

DEFAULT_TIMEOUT = 60.0
MAX_OUTPUT = 64 * 1024
MAX_ANSWER = 64 << 20
MAX_PROBLEMS = 50


def define_topology(
    file: str | os.PathLike[str],
    topology: str | None = None,
    name: str | None = None,
    args: Sequence[str] = (),
    timeout: float = DEFAULT_TIMEOUT,
    show: Callable[[str], None] | None = None,
    tells: Callable[[TopologyTraits], None] | None = None,
) -> TopologyDefinition:
    """Return the definition of ``topology`` in ``file``.

    Args:
        file: A .py file or a folder (see ``packaging.package``).
        topology: A class, a builder or any object with ``definition()``; ``module:Class`` in a folder; None for the
            only one.
        name: Name of the topology instead of its own.
        args: The file's ``sys.argv[1:]``.
        timeout: Time limit in seconds.
        show: Receives the end of what the file printed.
        tells: Receives the traits of the topology's classes.

    Raises:
        TopologyNotFound: The topology does not exist.
        TopologyError: The topology is invalid; names all problems.
        UserCodeError: The user's code raised, exited or exceeded the time limit.
    """
    with tempfile.TemporaryDirectory(prefix="heronry-define-") as folder:
        output, printed = Path(folder, "answer"), Path(folder, "printed")
        arguments = [os.fspath(file), *([topology] if topology else []), *(["--name", name] if name else [])]
        arguments += ["--output", str(output), "--", *args]
        with printed.open("wb+") as sink:
            code = _run(arguments, printed, timeout)
            said = _end_of(sink)
        answer, beside = _read(output), _read(traits_file(output))
    shown = Path(file).name
    if code is None:
        raise UserCodeError(
            f"{shown} did not return its topology within {timeout:g} s; importing it should only define classes: "
            "open files and connections in initialize()",
            output=said,
        )
    if answer is None:
        how = signal.Signals(-code).name if code < 0 else f"exit code {code}"
        raise UserCodeError(f"{shown} ended the process that imported it ({how})", output=said)
    try:
        if code != OK:
            raise _error(code, json.loads(answer), said)
        definition = msgspec.msgpack.decode(answer, type=TopologyDefinition)
        classes = TopologyTraits(**json.loads(beside or b"{}"))
    except (*UNREADABLE, ValueError, KeyError, TypeError) as error:
        if isinstance(error, Failure):
            raise
        raise UserCodeError(f"{shown} corrupted the result about its topology", output=said) from None
    if show is not None and said:
        show(screenful(said))
    if tells is not None:
        tells(classes)
    return definition


def _read(file: Path) -> bytes | None:
    if not file.exists():
        return None
    with file.open("rb") as opened:
        return opened.read(MAX_ANSWER)


def _run(arguments: list[str], output: Path, timeout: float) -> int | None:
    """Return the exit code, or None after ``timeout`` seconds. No process is left in either case."""
    process = start_session(MODULE, arguments, os.getcwd(), output)
    try:
        return process.wait(timeout)
    except subprocess.TimeoutExpired:
        return None
    finally:
        # Kill the group, since the user's code may have started processes. Ctrl-C also ends up here.
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        process.wait()


def _end_of(sink: IO[bytes]) -> str:
    size = sink.seek(0, os.SEEK_END)
    sink.seek(max(0, size - MAX_OUTPUT))
    return sink.read(MAX_OUTPUT).decode(errors="replace")


def _error(code: int, answer: dict[str, Any], said: str) -> Exception:
    if code == NOT_FOUND:
        return TopologyNotFound(one_line(answer["message"], 4000))
    if code == INVALID:
        problems = [one_line(str(problem), 1000) for problem in answer["problems"][:MAX_PROBLEMS]]
        return TopologyError(problems, answer["topology"], answer["heading"])
    return UserCodeError(answer["message"], answer.get("traceback", ""), said)
