"""A record that could not be processed, and how its story gets from a Python worker to the driver.

Spark hands the driver the text of a worker's exception, wrapped in its own. So the exception's text is one line of JSON
behind a marker, which the driver finds again wherever Spark has put it.
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
_UNNAMED = frozenset({"builtins", "__main__", *_PACKAGES})  # modules that are not told with a class
_SITE = Path(__file__).resolve().parents[2]  # where all of them are installed; executors have them as zips
_OWN = (
    *(f"{_SITE / package}/" for package in _PACKAGES),
    *(f"{package}.zip/" for package in _PACKAGES),
    "/pyspark/",
    "pyspark.zip/",
)


@dataclass(frozen=True)
class Failure:
    """What failed on what: the step, the input file (empty if there is none), the value, the user's traceback."""

    step: str
    value: str
    error: str
    traceback: str
    file: str = ""

    def __str__(self) -> str:
        place = f" (input file {self.file})" if self.file else ""
        return f"step {self.step!r} failed on the record {self.value}{place}: {self.error}"


class RecordFailed(Exception):
    """Raised in a worker; its text is for ``failure_in``."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(MARKER + json.dumps(asdict(failure)))
        self.failure = failure

    def __reduce__(self) -> tuple[type, tuple[Failure]]:
        return (RecordFailed, (self.failure,))


class ServerFailed(Exception):
    """Raised in a worker that cannot read a server, or write to it; its text is for ``server_failure_in``."""

    def __init__(self, step: str, said: str) -> None:
        super().__init__(SERVER_MARKER + json.dumps(f"step {step!r}: {said}"))
        self._given = step, said

    def __reduce__(self) -> tuple[type, tuple[str, str]]:
        return (ServerFailed, self._given)


def server_failure_in(text: str) -> str | None:
    """What such a worker said, if a text of Spark's holds it."""
    _, marker, rest = text.partition(SERVER_MARKER)
    if not marker:
        return None
    try:
        found, _ = json.JSONDecoder().raw_decode(rest)
        return str(found)
    except ValueError:
        return None


def failed(step: str, value: object, error: BaseException, file: str = "") -> RecordFailed:
    """The exception for ``error``, which ``step`` raised on ``value``."""
    return RecordFailed(Failure(step, shown(value, MAX_VALUE), _named(error), user_traceback(error), file))


def failure_in(text: str) -> Failure | None:
    """The failure that a text of Spark's holds, if any."""
    _, marker, rest = text.partition(MARKER)
    if not marker:
        return None
    try:
        found, _ = json.JSONDecoder().raw_decode(rest)
        return Failure(**found)
    except (ValueError, TypeError):
        return None


def user_traceback(error: BaseException) -> str:
    """The traceback without the frames of the pipeline and of Spark."""
    return users_traceback(error, _is_own)[-MAX_TRACEBACK:]


def _is_own(filename: str) -> bool:
    return any(place in filename for place in _OWN)


def _named(error: BaseException) -> str:
    """The kind of the error and the first line it says."""
    kind = type(error)
    module = "" if kind.__module__.partition(".")[0] in _UNNAMED else f"{kind.__module__}."
    said = str(error).strip().splitlines()
    return f"{module}{kind.__qualname__}: {said[0]}" if said else f"{module}{kind.__qualname__}"
