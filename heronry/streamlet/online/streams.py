"""Streams between the components of a compiled program.

- ``blocks``: source to chain. Each tuple is a piece of a file or of a sequence.
- ``hop-STEP-OUTPUT``: an exchange, to a chain. Each tuple is a block of records. The sender pickles them, so that a
  record that cannot be sent is detected while it can still be put aside.
- ``rows-REDUCER``: to a reducer. One row for each key of a block, grouped by key. With windows, one for each key and
  window, with the number of records that have this window as their first one. A late record is thus counted once.
- ``marks``: to every downstream component. The progress of event time.

Records that are late for a window, if a step reads them, are sent on ``hop-REDUCER-1`` or stay in the reducer's own
stage.
"""

from __future__ import annotations

from heronry.streamlet.program import Ref

BLOCKS = "blocks"
MARKS = "marks"
BLOCK_FIELDS = ("file", "first", "count", "header", "data")
RECORDS = "records"  # field of rows: number of records
EXCHANGE_FIELDS = ("origin", "records", "times", "ids")
MARK_FIELDS = ("kind", "origin", "time", "target")


def exchange_stream(ref: Ref) -> str:
    """Return the name of the stream that carries an output to chains."""
    return f"hop-{ref.step}-{ref.output}"  # metrics use this name


def rows_stream(reducer: str) -> str:
    """Return the name of the stream that carries rows to a reducer."""
    return f"rows-{reducer}"
