"""What a step of a program ends with when a record is too much for it, in every engine."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass
class StepFailed(Exception):
    """A function of the user's raised. ``step`` and ``record`` say where and on what, ``__cause__`` what it raised."""

    step: str
    record: Any
    where: str = ""  # the file, where it is known

    def __str__(self) -> str:
        place = f" of {self.where}" if self.where else ""
        return f"step {self.step!r} failed on the record {shown(self.record)}{place}: {self.__cause__!r}"


def shown(record: Any, limit: int = 200) -> str:
    """A record as text for messages, cut; also one whose ``repr`` raises."""
    try:
        text = repr(record)
    except Exception as error:  # the user's class may do anything
        text = f"<{type(record).__name__}, whose repr raises {type(error).__name__}>"
    return text if len(text) <= limit else text[: limit - 1] + "…"
