"""The streams between the components of a compiled program.

``blocks`` (source to chain: a piece of a file or of a sequence), ``hop-STEP-OUTPUT`` (an exchange, to a chain: a block
of records, pickled by the sender, so that one that cannot be sent is found while it can still be put aside),
``rows-REDUCER`` (to a reducer: one row for each key of a block, grouped by key) and ``marks`` (to everybody behind: how
far event time has come). Data that is late for a window and that somebody reads is ``hop-REDUCER-1`` or stays in the
reducer's own stage.
"""

from __future__ import annotations

from heronry.streamlet.program import Ref

BLOCKS = "blocks"
MARKS = "marks"
BLOCK_FIELDS = ("file", "first", "count", "header", "data")
EXCHANGE_FIELDS = ("origin", "records", "times", "ids")
MARK_FIELDS = ("kind", "origin", "time", "target")


def exchange_stream(ref: Ref) -> str:
    """The stream that carries an output to chains."""
    return f"hop-{ref.step}-{ref.output}"  # the name metrics know


def rows_stream(reducer: str) -> str:
    """The stream that carries rows to a reducer."""
    return f"rows-{reducer}"
