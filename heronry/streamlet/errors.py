"""Error of a step that fails on a record, the same in every engine."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass
class StepFailed(Exception):
    """Error for an exception in a function of the user. ``__cause__`` is that exception.

    Attributes:
        step: Name of the step.
        record: The record that the function failed on.
        where: The file, if it is known.
    """

    step: str
    record: Any
    where: str = ""  # the file, if it is known

    def __str__(self) -> str:
        place = f" of {self.where}" if self.where else ""
        return f"step {self.step!r} failed on the record {shown(self.record)}{place}: {shown(self.__cause__, 2000)}"


def shown(record: Any, limit: int = 200) -> str:
    """Return a record as text for messages, truncated. It also accepts a record whose ``repr`` raises."""
    try:
        text = repr(record)
    except Exception as error:  # a method of the user's class, which may raise anything
        text = f"<{type(record).__name__}, whose repr raises {type(error).__name__}>"
    return text if len(text) <= limit else text[: limit - 1] + "…"
