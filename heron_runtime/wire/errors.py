"""Errors of received messages."""

from __future__ import annotations

import msgspec

UNREADABLE = (msgspec.MsgspecError, UnicodeDecodeError)  # raised by msgspec; the latter for invalid UTF-8


class MalformedMessage(ValueError):
    """The bytes are not the message they should be; the link they came on is closed and the fault is logged."""
