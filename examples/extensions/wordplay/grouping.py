"""A grouping: each task gets a part of the alphabet, by the first letter of the first value."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

LETTERS = "abcdefghijklmnopqrstuvwxyz"


class Alphabet:
    """``other`` is the place among the tasks that gets what begins with no letter."""

    def __init__(self, other: int = 0) -> None:
        self.other = other

    def prepare(self, context: Any, component: str, stream: str, target_tasks: Sequence[int]) -> None:
        """Once in each emitting task; everything that can be known before the first tuple is computed here."""
        tasks = list(target_tasks)
        self.default = [tasks[self.other % len(tasks)]]
        self.by_letter = {letter: [tasks[n * len(tasks) // len(LETTERS)]] for n, letter in enumerate(LETTERS)}

    def choose_tasks(self, values: Sequence[Any]) -> list[int]:
        """Called for each tuple that is emitted, so it only looks up."""
        return self.by_letter.get(str(values[0])[:1].lower(), self.default)
