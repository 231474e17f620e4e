"""Grouping by the first letter of the first value: each task receives a part of the alphabet."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

LETTERS = "abcdefghijklmnopqrstuvwxyz"


class Alphabet:
    """Grouping by letter. The task with index ``other`` receives values that do not begin with a letter."""

    def __init__(self, other: int = 0) -> None:
        self.other = other

    def prepare(self, context: Any, component: str, stream: str, target_tasks: Sequence[int]) -> None:
        """Compute the table of tasks, once in each emitting task."""
        tasks = list(target_tasks)
        self.default = [tasks[self.other % len(tasks)]]
        self.by_letter = {letter: [tasks[n * len(tasks) // len(LETTERS)]] for n, letter in enumerate(LETTERS)}

    def choose_tasks(self, values: Sequence[Any]) -> list[int]:
        """Look up the task of a tuple."""
        return self.by_letter.get(str(values[0])[:1].lower(), self.default)
