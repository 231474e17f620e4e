"""The tracker's login: tokens that give the right to look, as there is no other right.

One comes as ``Authorization: Bearer TOKEN`` from programs, or as the password of HTTP's own login, under any user name:
so a browser asks for it by itself and sends it with every request of the page. Without it are heard: whether the
tracker lives and is ready, its own metrics, and the targets for Prometheus (hosts and ports, where another
key is wanted). Refusals are in the log: the first of an address, then how many came in the minute after it.
"""

from __future__ import annotations

import base64
import binascii
import logging
import re
import time
from datetime import UTC, datetime
from pathlib import Path

from starlette.types import ASGIApp, Receive, Scope, Send

from heron_control.web.guard import refuse
from heron_control.web.repeats import Kind, Repeats
from heron_control.web.serving import StartError
from heron_control.web.throttle import Throttle
from heron_control.web.tokens import DIGEST_CHARACTERS, Token, digest_of, fault_of, known
from heron_tracker.responses import encode_error

OPEN_PATHS = ("/healthz", "/health", "/readyz", "/metrics", "/prometheus/targets")
CHALLENGE = (b"www-authenticate", b'Basic realm="heron tracker", charset="UTF-8"')
LOOK_SECONDS = 1.0
MAX_TOKENS = 64
log = logging.getLogger(__name__)


class TokenMiddleware:
    """ASGI middleware: who shows no token that holds is answered 401, or 429 when he tries many."""

    def __init__(self, app: ASGIApp, tokens: TokenFile) -> None:
        self._app = app
        self._tokens = tokens
        self._throttle = Throttle()
        self._repeats = Repeats()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass on, or refuse."""
        if scope["type"] != "http" or scope["path"] in OPEN_PATHS:
            await self._app(scope, receive, send)
            return
        given = [value for name, value in scope["headers"] if name == b"authorization"]
        shown = self._tokens.known(_token_in(given[0])) if len(given) == 1 else None
        if shown is not None and not shown.expired(time.time()):
            await self._app(scope, receive, send)
            return
        source = scope["client"][0] if scope.get("client") else ""
        # A browser's first request has no token; to ask it for one is no refusal of anybody.
        heard = not given or self._throttle.wrong(source, time.monotonic())
        code = 401 if heard else 429
        words = (
            "this tracker wants a token: send it as a password or a bearer"
            if shown is None
            else "the token has expired"
        )
        if given:
            self._note(source, code, words)
        text = words if heard else "too many wrong tokens came from this address; wait a few seconds"
        await refuse(send, code, encode_error(text), *((CHALLENGE,) if heard else ()))

    def _note(self, source: str, code: int, words: str) -> None:
        now = time.monotonic()
        for kind, count in self._repeats.take(now):
            log.warning("refused %s %d times more: %d", kind.source, count, kind.result)
        if self._repeats.first(Kind("nobody", source, code), now):
            log.warning("refused %s: %d, %s", source, code, words)


class TokenFile:
    """The tokens in a file, read again when it changes.

    A file that cannot be read changes nothing, and the log says so. One that holds no token any more revokes all.
    """

    def __init__(self, path: Path) -> None:
        """Raises StartError."""
        self._path = path
        self._seen, self._tokens = self._read()
        if not self._tokens:
            raise StartError(f"{path} holds no token; write one of at least 16 random characters")
        self._look_at = time.monotonic() + LOOK_SECONDS

    def known(self, text: str) -> Token | None:
        """The token that was shown, expired or not."""
        if time.monotonic() >= self._look_at:
            self._look_at = time.monotonic() + LOOK_SECONDS
            try:
                if _mark(self._path) != self._seen:
                    self._seen, self._tokens = self._read()
                    log.info("%s has changed: %d tokens hold", self._path, len(self._tokens))
            except (OSError, StartError) as error:
                log.error("the tokens stay as they were: %s", error)
        return known(text, self._tokens)

    def _read(self) -> tuple[tuple[int, int], list[Token]]:
        try:
            mark, text = _mark(self._path), self._path.read_text()
            mode = self._path.stat().st_mode
        except (OSError, UnicodeDecodeError) as error:
            raise StartError(f"{self._path}: the tracker's tokens cannot be read: {error}") from error
        if mode & 0o077:
            raise StartError(f"{self._path}: other users may read the tracker's tokens; chmod 0400 {self._path}")
        return mark, parse_tokens(text, self._path)


def parse_tokens(text: str, path: Path) -> list[Token]:
    """Return the tokens of a file: one a line, or ``sha256:`` and its digest in hex; then, if it ends, a space and a
    time of ISO 8601. Raises StartError."""
    found = []
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        said, _, until = line.strip().partition(" ")
        fault = "" if said.startswith("sha256:") else fault_of(said)
        digest = said.removeprefix("sha256:") if said.startswith("sha256:") else digest_of(said)
        if not re.fullmatch(rf"[0-9a-f]{{{DIGEST_CHARACTERS}}}", digest):
            fault = "what follows sha256: is no digest in hex"
        try:
            end = datetime.fromisoformat(until.strip()) if until else None
        except ValueError:
            fault, end = "what follows the token is no time; write 2030-01-31T12:00:00Z", None
        if fault:
            raise StartError(f"{path}, line {number}: {fault}")
        if end is not None and end.tzinfo is None:
            end = end.replace(tzinfo=UTC)
        found.append(Token(f"line {number}", "read", digest, None if end is None else end.timestamp()))
    if len(found) > MAX_TOKENS:
        raise StartError(f"{path} holds {len(found)} tokens; {MAX_TOKENS} are the most")
    return found


def _mark(path: Path) -> tuple[int, int]:
    status = path.stat()
    return status.st_ino, status.st_mtime_ns


def _token_in(header: bytes) -> str:
    scheme, _, rest = header.strip().partition(b" ")
    if scheme.lower() == b"bearer":
        return rest.strip().decode("latin-1")
    if scheme.lower() != b"basic":
        return ""
    try:
        return base64.b64decode(rest.strip(), validate=True).partition(b":")[2].decode("latin-1")
    except binascii.Error:
        return ""
