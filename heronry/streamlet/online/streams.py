"""The streams between the components of a compiled program.

``blocks`` (source to chain: a piece of a file or of a sequence), ``hop-STEP-OUTPUT`` (an exchange, to a chain: a block
of records), ``rows-REDUCER`` (to a reducer: one row for each key of a block, grouped by key), ``marks`` (to everybody
behind: how far event time has come) and ``pulses`` (to reducers whose results leave their process, see pulses.py). Data
that is late for a window and that somebody reads is ``hop-REDUCER-1`` or stays in the reducer's own stage.
"""

from __future__ import annotations

from heronry.streamlet.online.pulses import Pulse
from heronry.streamlet.program import Ref

BLOCKS = "blocks"
MARKS = "marks"
PULSES = "pulses"
BLOCK_FIELDS = ("file", "first", "count", "header", "data", "tries")  # tries: how often the block has failed
EXCHANGE_FIELDS = ("origin", "records", "times", "ids", "tries")
PULSE_FIELDS = Pulse._fields
MARK_FIELDS = ("kind", "origin", "time", "target")


def exchange_stream(ref: Ref) -> str:
    """The stream that carries an output to chains."""
    return f"hop-{ref.step}-{ref.output}"  # the name metrics know


def rows_stream(reducer: str) -> str:
    """The stream that carries rows to a reducer."""
    return f"rows-{reducer}"
