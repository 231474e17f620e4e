"""The write ends of the lifelines: held by heron_container alone, closed when a child has ended or must end.

What a child must be told in secret lies in its lifeline: no file, command line or environment has it, and the zygote,
which only hands the descriptor on, does not learn it.
"""

from __future__ import annotations

import os


class Lifeline:
    """A pipe. The child gets the read end, with ``secret`` in it; our death, or ``cut``, gives it end of file."""

    def __init__(self, secret: str = "") -> None:
        self.read_end, self._write_end = os.pipe()
        os.write(self._write_end, secret.encode())

    def close_read_end(self) -> None:
        """Our copy of it, once the child has its own."""
        if self.read_end >= 0:
            os.close(self.read_end)
            self.read_end = -1

    def cut(self) -> None:
        """The child exits at once, if it still lives. Idempotent."""
        self.close_read_end()
        if self._write_end >= 0:
            os.close(self._write_end)
            self._write_end = -1
