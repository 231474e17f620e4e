"""What can be wrong with a message that arrived."""

from __future__ import annotations


class MalformedMessage(ValueError):
    """The bytes are not the message they should be; the link they came on is closed and the fault is logged."""
