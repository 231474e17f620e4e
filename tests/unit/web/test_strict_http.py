"""Strict parsing of HTTP heads: ambiguous ones are rejected for any cuts, plain ones are read."""

from __future__ import annotations

import h11
import pytest
from hypothesis import given
from hypothesis import strategies as st

from heron_control.web.serving import StrictConnection

HOST = b"Host: localhost\r\n"
AMBIGUOUS = {
    "length and chunks": b"POST / HTTP/1.1\r\n" + HOST + b"Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n",
    "chunks and length": b"POST / HTTP/1.1\r\n" + HOST + b"Transfer-Encoding: chunked\r\nContent-Length: 4\r\n\r\n",
    "two lengths": b"POST / HTTP/1.1\r\n" + HOST + b"Content-Length: 4\r\nContent-Length: 5\r\n\r\n",
    "LF after the request line": b"GET / HTTP/1.1\n" + HOST + b"\r\n",
    "LF after a header": b"GET / HTTP/1.1\r\nHost: localhost\nA: b\r\n\r\n",
    "LF at the end": b"GET / HTTP/1.1\r\n" + HOST + b"\n",
    "a CR in a line": b"GET / HTTP/1.1\r\nHost: localhost\rA: b\r\n\r\n",
    "a folded header": b"GET / HTTP/1.1\r\n" + HOST + b"A: b\r\n c: d\r\n\r\n",
    "a folded header by tab": b"GET / HTTP/1.1\r\n" + HOST + b"Transfer-Encoding:\r\n\tchunked\r\n\r\n",
    "a space before the colon": b"GET / HTTP/1.1\r\n" + HOST + b"Content-Length : 4\r\n\r\n",
    "another encoding": b"POST / HTTP/1.1\r\n" + HOST + b"Transfer-Encoding: gzip, chunked\r\n\r\n",
}
PLAIN = {
    "no body": b"GET /a HTTP/1.1\r\n" + HOST + b"\r\n",
    "a body of lines": b"POST /a HTTP/1.1\r\n" + HOST + b"Content-Length: 6\r\n\r\n\n\r\n a\n",
    "chunks": b"POST /a HTTP/1.1\r\n" + HOST + b"Transfer-Encoding: chunked\r\n\r\n2\r\n\n\n\r\n0\r\n\r\n",
}
cuts = st.lists(st.integers(1, 30), max_size=12)


def read(data: bytes, pieces: list[int]) -> list[type]:
    connection = StrictConnection(h11.SERVER)
    events: list[type] = []
    while data:
        size = pieces.pop() if pieces else len(data)
        connection.receive_data(data[:size])
        data = data[size:]
        while (event := connection.next_event()) is not h11.NEED_DATA:
            if event is h11.PAUSED:  # one request is complete, the next waits for its answer
                connection.send(h11.Response(status_code=200, headers=[("content-length", "0")]))
                connection.send(h11.EndOfMessage())
                connection.start_next_cycle()
                continue
            events.append(type(event))
    return events


@pytest.mark.parametrize("what", AMBIGUOUS)
@given(pieces=cuts)
def test_ambiguous_request_is_rejected(what: str, pieces: list[int]) -> None:
    with pytest.raises(h11.RemoteProtocolError):
        read(AMBIGUOUS[what], pieces)


@pytest.mark.parametrize("what", AMBIGUOUS)
@pytest.mark.parametrize("before", PLAIN)
def test_ambiguous_request_after_another_is_rejected(what: str, before: str) -> None:
    with pytest.raises(h11.RemoteProtocolError):
        read(PLAIN[before] + AMBIGUOUS[what], [])


@given(st.lists(st.sampled_from(sorted(PLAIN)), min_size=1, max_size=3), cuts)
def test_plain_requests_are_read(which: list[str], pieces: list[int]) -> None:
    events = read(b"".join(PLAIN[what] for what in which), pieces)
    assert events.count(h11.Request) == events.count(h11.EndOfMessage) == len(which)
