"""What can be wrong with a message that arrived."""

from __future__ import annotations

import msgspec

UNREADABLE = (msgspec.MsgspecError, UnicodeDecodeError)  # what msgspec raises; of text that is no UTF-8 the latter


class MalformedMessage(ValueError):
    """The bytes are not the message they should be; the link they came on is closed and the fault is logged."""
