"""Check of Host and Origin of every request, and the headers of every response.

Every page in the user's browser can send requests to a server on loopback. A page cannot read a response without CORS
headers, which are never sent. *DNS rebinding*, where a name of the attacker resolves to 127.0.0.1, is stopped by the
list of host names: a request with another Host is refused. So is one whose Origin is another site.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from urllib.parse import urlsplit

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
