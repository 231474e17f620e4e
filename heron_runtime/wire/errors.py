"""Errors of received messages."""

from __future__ import annotations

import msgspec

UNREADABLE = (msgspec.MsgspecError, UnicodeDecodeError)  # raised by msgspec; the latter for invalid UTF-8


class MalformedMessage(ValueError):
    """Received bytes are not a valid message. The link is closed and the fault is logged."""
