"""Limits on the size and duration of request bodies, as an ASGI middleware.

Each path has its own maximum size and time. A larger ``Content-Length`` is refused before a byte is read. A client that
sends nothing for IDLE_SECONDS, or exceeds the total time, gets 408 and loses its connection. A slow sender costs one
task and no thread.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from heron_control.web.guard import refuse

IDLE_SECONDS = 30.0


class TooLarge(HTTPException):
    """Raised for a body above its limit (413); the message names the limit."""

    def __init__(self, message: str) -> None:
        super().__init__(413, message, {"connection": "close"})


class TooSlow(HTTPException):
    """Raised for a body that does not arrive in time (408)."""

    def __init__(self, message: str) -> None:
        super().__init__(408, message, {"connection": "close"})


class BodyBounds:
    """ASGI middleware that limits request bodies.

    ``bounds`` returns maximum bytes and seconds of a body by method and path. The exceptions are raised to the reader
    of the body. ``failure`` builds the body of the response if the application has not read yet.
    """

    def __init__(
        self,
        app: ASGIApp,
        bounds: Callable[[str, str], tuple[int, float]],
        failure: Callable[[str], bytes],
        idle_seconds: float = IDLE_SECONDS,
    ) -> None:
        self._app = app
        self._bounds = bounds
        self._failure = failure
        self._idle_seconds = idle_seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on with limits on its body."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        most, total_seconds = self._bounds(scope["method"], scope["path"])
        announced = next((value for name, value in scope["headers"] if name == b"content-length"), b"0")
        if announced.isdigit() and int(announced[:20]) > most:
            message = f"the body of this request has at most {most} bytes"
            await refuse(send, 413, self._failure(message), (b"connection", b"close"))
            return
        began = time.monotonic()
        received = 0
        complete = False

        async def watched() -> Message:
            nonlocal received, complete
            if complete:
                return await receive()  # waits for the end of the connection, as long as the answer takes
            left = total_seconds - (time.monotonic() - began)
            try:
                async with asyncio.timeout(max(0.0, min(self._idle_seconds, left))):
                    message = await receive()
            except TimeoutError:
                raise TooSlow(f"incomplete request body: no data for {self._idle_seconds:g} s, or too little") from None
            if message["type"] == "http.request":
                received += len(message.get("body", b""))
                complete = not message.get("more_body", False)
                if received > most:
                    raise TooLarge(f"the body of this request has at most {most} bytes")
            return message

        await self._app(scope, watched, send)
