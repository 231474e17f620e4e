"""Checks of every request: Host, Origin, size and duration of its body; headers of every response.

Every page in the user's browser can send requests to a server on loopback. A page cannot read a response without CORS
headers, which are never sent. *DNS rebinding*, where a name of the attacker resolves to 127.0.0.1, is stopped by the
list of host names: a request with another Host is refused. So is one whose Origin is another site.

Each path has its own maximum size and time of a body. A larger ``Content-Length`` is refused before a byte is read. A
client that sends nothing for IDLE_SECONDS, or exceeds the total time, gets 408 and loses its connection. A slow sender
costs one task and no thread.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable
from urllib.parse import urlsplit

from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

Observe = Callable[[str, int, float], None]  # route, status code, seconds

ALWAYS_ALLOWED = ("localhost", "127.0.0.1", "::1")
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'"
)
HEADERS = (
    (b"content-security-policy", POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"cross-origin-opener-policy", b"same-origin"),
)
MAX_QUERY_BYTES = 16 * 1024


class Guard:
    """ASGI middleware around the whole application.

    ``hosts`` are names it accepts besides localhost, ``who`` is its own name in a refusal, ``failure`` builds the body
    of a refusal, ``observe`` receives every response.
    """

    def __init__(
        self, app: ASGIApp, hosts: Iterable[str], who: str, failure: Callable[[str], bytes], observe: Observe
    ) -> None:
        self._app = app
        self._hosts = frozenset(h.lower().rstrip(".") for h in (*ALWAYS_ALLOWED, *hosts))
        self._who = who
        self._failure = failure
        self._observe = observe

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Refuse the request, or pass it on and complete the response."""
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self._app(scope, receive, send)
            return
        began = time.perf_counter()
        scope.setdefault("state", {})["began"] = began
        code = 500

        async def finish(message: Message) -> None:
            nonlocal code
            if message["type"] == "http.response.start":
                code = message["status"]
                took = f"{time.perf_counter() - began:.6f}".encode()
                given = {name for name, _ in message["headers"]}
                added = [pair for pair in (*HEADERS, (b"x-process-time", took)) if pair[0] not in given]
                if b"cache-control" not in given:
                    added.append((b"cache-control", b"no-store"))
                message["headers"] = [*message["headers"], *added]
            await send(message)

        refusal = self._refusal(scope)
        try:
            if refusal is None:
                await self._app(scope, receive, finish)
            else:
                await refuse(finish, refusal[0], self._failure(refusal[1]))
        finally:
            route = getattr(scope.get("route"), "path", "other")
            self._observe(route, code, time.perf_counter() - began)

    def _refusal(self, scope: Scope) -> tuple[int, str] | None:
        headers: dict[bytes, list[str]] = {}
        for name, value in scope["headers"]:
            headers.setdefault(name, []).append(value.decode("latin-1"))
        hosts = headers.get(b"host", [])
        if len(hosts) != 1 or host_of(hosts[0]) not in self._hosts:
            return 421, (
                f"{self._who} does not answer to that host name; start it with --allow-host NAME for each name it has"
            )
        for origin in headers.get(b"origin", []):
            if _origin_host(origin) not in self._hosts:
                return 403, "requests from pages of other sites are refused"
        if len(scope.get("query_string", b"")) > MAX_QUERY_BYTES:
            return 414, f"a query has at most {MAX_QUERY_BYTES} bytes"
        return None


async def refuse(send: Send, code: int, body: bytes, *more: tuple[bytes, bytes]) -> None:
    """Send a JSON response instead of the application's, with ``more`` headers."""
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode()), *more]
    await send({"type": "http.response.start", "status": code, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def host_of(header: str) -> str | None:
    """Return the name in a Host header without its port, or None if it is invalid."""
    try:
        parts = urlsplit(f"//{header.strip()}")
        port_is_fine = parts.port is None or parts.port > 0
    except ValueError:
        return None
    if not port_is_fine or parts.path or parts.query or parts.fragment or "@" in parts.netloc:
        return None
    return (parts.hostname or "").lower().rstrip(".") or None


def _origin_host(origin: str) -> str | None:
    scheme, separator, rest = origin.strip().partition("://")
    return host_of(rest) if separator and scheme in ("http", "https") else None


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
            seconds_left = total_seconds - (time.monotonic() - began)
            try:
                async with asyncio.timeout(max(0.0, min(self._idle_seconds, seconds_left))):
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


RETRY = {"retry-after": "2"}  # sent with every 503
MAX_FAULTS = 8


def argument_faults(error: RequestValidationError) -> list[str]:
    """Return what is wrong with each argument of a request."""
    return [f"{'.'.join(str(p) for p in e['loc'][1:]) or e['loc'][0]}: {e['msg']}" for e in error.errors()][:MAX_FAULTS]
