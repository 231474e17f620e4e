"""Policy for records that fail, and the format in which they are put aside, the same for every engine.

Theory of operation. ``user.streamlet.on.error`` is ``aside`` (the default) or ``fail``, set in the program's
configuration or at submission.

*Aside*: the input of the component or unit in which a step failed (a line of a source, a reducer's result) is left out
as a whole and written as a line of JSON: time, step, where (file and line), record, failed_on, error, traceback. The
limit is ``user.streamlet.aside.most`` records, per task online, per job in batch. One more is a failure.

*Fail*: a batch ends and writes nothing. Online the block is retried indefinitely.
"""

from __future__ import annotations

import json
import time
import traceback
from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec

from heron_runtime.failures import Failure, UsageError, did_you_mean
from heronry.streamlet.errors import shown

ON_ERROR = "user.streamlet.on.error"
MOST = "user.streamlet.aside.most"
POLICIES = ("aside", "fail")
MOST_ASIDE = 10_000
MAX_RECORD_CHARACTERS = 64 * 1024
MAX_FAILED_ON_CHARACTERS = 500


class TooManyFailures(Failure):
    """Error for more failing records than the policy allows."""

    cure = f"Fix the function or the data, or allow more: {MOST}."


class FailurePolicy(NamedTuple):
    """Policy for records that fail. ``most`` is the number of records that may be put aside."""

    aside: bool
    most: int


def policy_of(config: Mapping[str, Any]) -> FailurePolicy:
    """Return the policy that the configuration sets.

    Raises:
        UsageError: A setting is invalid.
    """
    chosen, most = config.get(ON_ERROR, POLICIES[0]), config.get(MOST, MOST_ASIDE)
    if chosen not in POLICIES:
        raise UsageError(
            f"{ON_ERROR} is {chosen!r}{did_you_mean(str(chosen), POLICIES)}", f"Write {' or '.join(POLICIES)}."
        )
    if not str(most).isdecimal():
        raise UsageError(f"{MOST} is {most!r}", "Write how many records may be put aside: a whole number.")
    return FailurePolicy(chosen == "aside", int(most))


def failure_line(step: str, where: str, record: Any, failed_on: str, error: BaseException) -> bytes:
    """Return the line of JSON for a failed record, with its line end."""
    line = {
        "time": time.time(), "step": step, "where": where, "record": plain(record), "failed_on": failed_on,
        "error": shown(error, MAX_RECORD_CHARACTERS),
        "traceback": "".join(traceback.format_exception(error)),
    }  # fmt: skip
    return json.dumps(line).encode() + b"\n"


def plain(record: Any) -> Any:
    """Return the record as JSON data that can be read again, or else as text."""
    try:
        data = msgspec.json.encode(record)
        return json.loads(data) if len(data) <= MAX_RECORD_CHARACTERS else shown(record, MAX_RECORD_CHARACTERS)
    except Exception:
        return shown(record, MAX_RECORD_CHARACTERS)
