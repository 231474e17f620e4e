"""The tracker's login: one token, which gives the right to look, as there is no other right.

It comes as ``Authorization: Bearer TOKEN`` from programs, or as the password of HTTP's own login, under any user name:
so a browser asks for it by itself and sends it with every request of the page. Without it are heard: whether the
tracker lives and is ready, its own metrics, and the targets for Prometheus (hosts and ports, where another
key is wanted).
"""

from __future__ import annotations

import base64
import binascii
import hmac
from pathlib import Path

from starlette.types import ASGIApp, Receive, Scope, Send

from heron_control.web.guard import refuse
from heron_control.web.serving import StartError
from heron_tracker.shell.replies import failure_body

OPEN_PATHS = ("/healthz", "/health", "/readyz", "/metrics", "/prometheus/targets")
LEAST_TOKEN = 16
CHALLENGE = (b"www-authenticate", b'Basic realm="heron tracker", charset="UTF-8"')


class Login:
    """ASGI middleware: who does not show the token is answered 401, whatever he asks for."""

    def __init__(self, app: ASGIApp, token: str) -> None:
        self._app = app
        self._token = token.encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass on, or refuse."""
        if scope["type"] != "http" or scope["path"] in OPEN_PATHS or self._is_shown(scope):
            await self._app(scope, receive, send)
            return
        await refuse(
            send, 401, failure_body("this tracker wants its token: send it as a password or a bearer"), CHALLENGE
        )

    def _is_shown(self, scope: Scope) -> bool:
        given = [value for name, value in scope["headers"] if name == b"authorization"]
        return len(given) == 1 and hmac.compare_digest(_token_in(given[0]), self._token)


def _token_in(header: bytes) -> bytes:
    scheme, _, rest = header.strip().partition(b" ")
    if scheme.lower() == b"bearer":
        return rest.strip()
    if scheme.lower() != b"basic":
        return b""
    try:
        return base64.b64decode(rest.strip(), validate=True).partition(b":")[2]
    except binascii.Error:
        return b""


def read_token(file: Path) -> str:
    """The token in ``file``, which nobody else may read. Raises StartError."""
    try:
        mode, token = file.stat().st_mode, file.read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise StartError(f"{file}: the tracker's token cannot be read: {error}") from error
    if mode & 0o077:
        raise StartError(f"{file}: other users may read the tracker's token; chmod 0400 {file}")
    if len(token) < LEAST_TOKEN:
        raise StartError(f"{file}: the tracker's token has at least {LEAST_TOKEN} characters; draw one at random")
    return token
