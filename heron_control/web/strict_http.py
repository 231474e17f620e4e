"""Strict HTTP/1.1 parsing.

If a request can be read in two ways, a proxy in front may read it differently and pass a second request that it has not
seen. h11 accepts what older specifications allow: ``Content-Length`` together with ``Transfer-Encoding``, lines that
end without CR, continued header lines. Each of these is refused with 400.
"""

from __future__ import annotations

import re
from typing import Any

import h11

_LOOSE = re.compile(rb"(?<!\r)\n|\r(?!\n)|\n[ \t]")  # a line that ends by LF or CR alone, or a folded line


class StrictConnection(h11.Connection):
    """Server side of a connection."""

    def next_event(self) -> Any:
        """Return h11's next event.

        Raises:
            RemoteProtocolError: The head of the request is ambiguous.
        """
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
