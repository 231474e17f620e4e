"""Failed roots on their way to the tracker, grouped so that text is sent once.

A flush carries one ``Fail`` for each spout task and text. At most ``MAX_TEXTS`` different texts (message and traceback)
of each kind go with one flush; what fails for yet other reasons goes without text.
"""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np

from heron_instance.core.input_batch import split_by_task
from heron_runtime.model.dataflow import MAX_REASON_TEXT, FailKind
from heron_runtime.wire.data import Fail, Reason

MAX_TEXTS = 8


class Failures:
    """Collects failed roots until the next flush."""

    def __init__(self, component: str, task: int) -> None:
        self._component = component
        self._task = task
        self._roots: dict[tuple[FailKind, str, str], list[int]] = {}
        # (source component, stream, when its batch arrived, kind) to failed tuples, for whoever counts
        self.newly_failed: dict[tuple[str, str, float, FailKind], int] = {}

    def add(self, batch: Any, indices: list[int], kind: FailKind, message: str = "", traceback: str = "") -> None:
        """These tuples of a batch have failed."""
        self.count(batch.component, batch.stream, batch.arrived_ms, kind, len(indices))
        if batch.roots is not None:
            self.add_roots([root for i in indices for root in batch.roots_of(i)], kind, message, traceback)

    def count(self, component: str, stream: str, arrived_ms: float, kind: FailKind, n: int) -> None:
        """So many tuples of this source have failed; for the figures only."""
        key = (component, stream, arrived_ms, kind)
        self.newly_failed[key] = self.newly_failed.get(key, 0) + n

    def add_roots(self, roots: list[int], kind: FailKind, message: str = "", traceback: str = "") -> None:
        """These roots have failed."""
        text = (kind, message[:MAX_REASON_TEXT], traceback[-MAX_REASON_TEXT:])
        if text not in self._roots and sum(known[0] is kind for known in self._roots) >= MAX_TEXTS:
            text = (kind, "", "")
        self._roots.setdefault(text, []).extend(roots)

    def waiting(self) -> bool:
        """True if a root waits."""
        return bool(self._roots)

    def take(self) -> list[Fail]:
        """Everything since the last call, for the wire."""
        taken, self._roots = self._roots, {}
        fails = []
        for (kind, message, traceback), roots in taken.items():
            if not roots:
                continue
            column = np.unique(np.array(roots, dtype=np.uint64))
            reason = Reason(kind, self._component, self._task, message, traceback)
            fails += [Fail(task, mine.tobytes(), reason) for task, mine, _ in split_by_task(column, column)]
        return fails


def takes_reason(fail: Any) -> bool:
    """True if the user's ``fail`` has room for the reason beside the id."""
    try:
        parameters = inspect.signature(fail).parameters.values()
    except (TypeError, ValueError):
        return False
    positional = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    return len(positional) >= 2 or any(p.kind is p.VAR_POSITIONAL for p in parameters)
