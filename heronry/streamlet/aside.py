"""What becomes of a record that fails: one policy and one kind of line for every engine.

Theory of operation. ``user.streamlet.on.error`` says ``aside`` (the default) or ``fail``, in the program's
configuration or where it is submitted. *Aside*: what entered the component or unit in which a step failed (a line of a
source, a reducer's result) is left out as a whole and written as a line of JSON: time, step, where (file and line),
record, failed_on, error, traceback. There may be ``user.streamlet.aside.most`` of them, for a task online, for a job in
batch; one more is a failure. *Fail*: a batch ends and writes nothing; online the block is tried for ever.
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
    """There are more records that fail than the policy lets pass."""

    cure = f"Mend the function or the data, or allow more: {MOST}."


class FailurePolicy(NamedTuple):
    """``most``: how many records may be put aside."""

    aside: bool
    most: int


def policy_of(config: Mapping[str, Any]) -> FailurePolicy:
    """What the configuration says. Raises UsageError."""
    chosen, most = config.get(ON_ERROR, POLICIES[0]), config.get(MOST, MOST_ASIDE)
    if chosen not in POLICIES:
        raise UsageError(
            f"{ON_ERROR} is {chosen!r}{did_you_mean(str(chosen), POLICIES)}", f"Write {' or '.join(POLICIES)}."
        )
    if not str(most).isdecimal():
        raise UsageError(f"{MOST} is {most!r}", "Write how many records may be put aside: a whole number.")
    return FailurePolicy(chosen == "aside", int(most))


def failure_line(step: str, where: str, record: Any, failed_on: str, error: BaseException) -> bytes:
    """The line of JSON, with its end."""
    line = {
        "time": time.time(), "step": step, "where": where, "record": plain(record), "failed_on": failed_on,
        "error": repr(error), "traceback": "".join(traceback.format_exception(error)),
    }  # fmt: skip
    return json.dumps(line).encode() + b"\n"


def plain(record: Any) -> Any:
    """As JSON says it, so that it can be read again; else as text."""
    try:
        data = msgspec.json.encode(record)
        return json.loads(data) if len(data) <= MAX_RECORD_CHARACTERS else shown(record, MAX_RECORD_CHARACTERS)
    except Exception:
        return shown(record, MAX_RECORD_CHARACTERS)
