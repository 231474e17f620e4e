"""What sources share that ask a server for what is new: splits in turn, and a wait when none has anything."""

from __future__ import annotations

import time
from typing import Any

from heronry.api.component import Spout
from heronry.connect.settings import BadConfig


class PollingSource(Spout):
    """Derive; call ``begin_polling`` in ``initialize``, and write ``splits`` and ``read_split``."""

    def begin_polling(self, poll_secs: float) -> None:
        """Ask at once, and ``poll_secs`` after nothing had anything."""
        self._poll_secs = poll_secs
        self._owned: list[str] | None = None
        self._turn = 0
        self._ask_at = float("-inf")

    def read_split(self, split: str) -> bool:
        """Emit what comes next in a split, and keep its position; False if nothing does."""
        raise NotImplementedError

    def next_tuple(self) -> None:
        """Something of the next split that has any."""
        if time.monotonic() < self._ask_at:
            return
        if self._owned is None:
            self._owned = self.owned_splits()
        for step in range(len(self._owned)):
            if self.read_split(self._owned[(self._turn + step) % len(self._owned)]):
                self._turn += step + 1
                return
        self._ask_at = time.monotonic() + self._poll_secs


def fields_of(context: Any, example: str) -> tuple[str, ...]:
    """What a source has been told to read. Raises BadConfig, with the example, if that is nothing."""
    try:
        return tuple(context.get_fields(context.get_component_id(), "default"))
    except KeyError:
        raise BadConfig(f"{example.partition('.')[0]} has no fields: name those that it reads, {example}") from None
