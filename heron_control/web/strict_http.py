"""HTTP/1.1 as it is written, not as it is guessed.

Where a request can be read in two ways, a proxy in front may read it in the other one, and let a second request through
that it never saw. h11 takes for fine what older texts allow: a ``Content-Length`` beside ``Transfer-Encoding``, lines
that end without CR, header lines that go on in the next. Here each of them is refused with 400.
"""

from __future__ import annotations

import re
from typing import Any

import h11

_LOOSE = re.compile(rb"(?<!\r)\n|\r(?!\n)|\n[ \t]")  # a line that ends by LF or CR alone, or goes on in the next


class StrictConnection(h11.Connection):
    """The server's side of a connection."""

    def next_event(self) -> Any:
        """As h11's. Raises RemoteProtocolError for the head of a request that can be read in two ways."""
        if self.their_state is not h11.IDLE:
            return super().next_event()
        before = self.trailing_data[0]
        event = super().next_event()
        if isinstance(event, h11.Request):
            head = before[: len(before) - len(self.trailing_data[0])]
            names = [name for name, _ in event.headers]
            if _LOOSE.search(head):
                raise h11.RemoteProtocolError("header lines end with CR LF, and none goes on in the next")
            if b"transfer-encoding" in names and b"content-length" in names:
                raise h11.RemoteProtocolError("a request has a Content-Length or a Transfer-Encoding, not both")
        return event
