"""Failures of records, and their transport from a Python worker to the driver.

Spark gives the driver the text of a worker's exception wrapped in its own message. The exception's text is therefore
one line of JSON after a marker, which the driver finds wherever Spark has put it.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from heron_runtime.failures import users_traceback
from heronry.streamlet.errors import shown

MARKER = "HERONRY-RECORD-FAILED "
SERVER_MARKER = "HERONRY-SERVER-FAILED "
MAX_VALUE, MAX_TRACEBACK = 500, 8_000
_PACKAGES = ("heronry", "heron_runtime", "heron_control", "data_pipeline")
_UNNAMED = frozenset({"builtins", "__main__", *_PACKAGES})  # modules that are omitted from the name of an exception
_SITE = Path(__file__).resolve().parents[2]  # where all packages are installed; executors have them as zips
_OWN = (
    *(f"{_SITE / package}/" for package in _PACKAGES),
    *(f"{package}.zip/" for package in _PACKAGES),
    "/pyspark/",
    "pyspark.zip/",
)


@dataclass(frozen=True)
class Failure:
    """Failed record: the step, the value, the error, the user's traceback, and the input file (empty if unknown)."""

    step: str
    value: str
    error: str
    traceback: str
    file: str = ""

    def __str__(self) -> str:
        place = f" (input file {self.file})" if self.file else ""
        return f"step {self.step!r} failed on the record {self.value}{place}: {self.error}"


class RecordFailed(Exception):
    """Failure of a step on a record, raised in a worker; ``failure_in`` parses its text."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(MARKER + json.dumps(asdict(failure)))
        self.failure = failure

    def __reduce__(self) -> tuple[type, tuple[Failure]]:
        return (RecordFailed, (self.failure,))


class ServerFailed(Exception):
    """Failure of a worker to read from or write to a server; ``server_failure_in`` parses its text."""

    def __init__(self, step: str, said: str) -> None:
        super().__init__(SERVER_MARKER + json.dumps(f"step {step!r}: {said}"))
        self._given = step, said

    def __reduce__(self) -> tuple[type, tuple[str, str]]:
        return (ServerFailed, self._given)


def server_failure_in(text: str) -> str | None:
    """Return the message of a ``ServerFailed`` that a text of Spark's contains; None if it contains none."""
    _, marker, rest = text.partition(SERVER_MARKER)
    if not marker:
        return None
    try:
        document, _ = json.JSONDecoder().raw_decode(rest)
        return str(document)
    except ValueError:
        return None


def failed(step: str, value: object, error: BaseException, file: str = "") -> RecordFailed:
    """Return the exception for ``error``, which ``step`` raised on ``value``."""
    return RecordFailed(Failure(step, shown(value, MAX_VALUE), _named(error), user_traceback(error), file))


def failure_in(text: str) -> Failure | None:
    """Return the failure that a text of Spark's contains; None if it contains none."""
    _, marker, rest = text.partition(MARKER)
    if not marker:
        return None
    try:
        document, _ = json.JSONDecoder().raw_decode(rest)
        return Failure(**document)
    except (ValueError, TypeError):
        return None


def user_traceback(error: BaseException) -> str:
    """Return the traceback without the frames of the pipeline and of Spark."""
    return users_traceback(error, _is_own)[-MAX_TRACEBACK:]


def _is_own(filename: str) -> bool:
    return any(place in filename for place in _OWN)


def _named(error: BaseException) -> str:
    """Return the type of the error and the first line of its message."""
    kind = type(error)
    module = "" if kind.__module__.partition(".")[0] in _UNNAMED else f"{kind.__module__}."
    said = str(error).strip().splitlines()
    return f"{module}{kind.__qualname__}: {said[0]}" if said else f"{module}{kind.__qualname__}"
