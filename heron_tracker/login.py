"""Token check of the tracker. Every token gives read access, the only permission of the tracker.

Programs send ``Authorization: Bearer TOKEN``. Browsers send the token as the password of HTTP Basic authentication
under any user name, so they ask for it themselves and send it with every request of the page. Health, readiness,
metrics and the Prometheus targets (hosts and ports, which require another key) are open. Refusals are logged: the
first of an address, then the number of those in the following minute.
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
from heron_control.web.serving import StartError
from heron_control.web.tokens import DIGEST_CHARACTERS, Kind, Repeats, Throttle, Token, digest_of, fault_of, find_token
from heron_tracker.responses import encode_error

OPEN_PATHS = ("/healthz", "/health", "/readyz", "/metrics", "/prometheus/targets")
CHALLENGE = (b"www-authenticate", b'Basic realm="heron tracker", charset="UTF-8"')
LOOK_SECONDS = 1.0
MAX_TOKENS = 64
log = logging.getLogger(__name__)


class TokenMiddleware:
    """ASGI middleware that answers requests without a valid token with 401, or with 429 after many wrong tokens."""

    def __init__(self, app: ASGIApp, tokens: TokenFile) -> None:
        self._app = app
        self._tokens = tokens
        self._throttle = Throttle()
        self._repeats = Repeats()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or refuse it."""
        if scope["type"] != "http" or scope["path"] in OPEN_PATHS:
            await self._app(scope, receive, send)
            return
        given = [value for name, value in scope["headers"] if name == b"authorization"]
        shown = self._tokens.find(_token_in(given[0])) if len(given) == 1 else None
        if shown is not None and not shown.expired(time.time()):
            await self._app(scope, receive, send)
            return
        source = scope["client"][0] if scope.get("client") else ""
        # The first request of a browser has no token; the challenge is not a refusal.
        heard = not given or self._throttle.wrong(source, time.monotonic())
        code = 401 if heard else 429
        words = (
            "this tracker requires a token: send it as a password or a bearer token"
            if shown is None
            else "the token has expired"
        )
        if given:
            self._note(source, code, words)
        text = words if heard else "too many wrong tokens from this address; wait a few seconds"
        await refuse(send, code, encode_error(text), *((CHALLENGE,) if heard else ()))

    def _note(self, source: str, code: int, words: str) -> None:
        now = time.monotonic()
        for kind, count in self._repeats.take(now):
            log.warning("refused %s %d more times: %d", kind.source, count, kind.result)
        if self._repeats.first(Kind("", source, code), now):
            log.warning("refused %s: %d, %s", source, code, words)


class TokenFile:
    """Tokens of a file, read again when it changes.

    An unreadable file changes nothing and is logged. A file without tokens revokes all.
    """

    def __init__(self, path: Path) -> None:
        """Read the tokens. Raises StartError."""
        self._path = path
        self._seen, self._tokens = self._read()
        if not self._tokens:
            raise StartError(f"{path}: contains no token; write one of at least 16 random characters")
        self._look_at = time.monotonic() + LOOK_SECONDS

    def find(self, text: str) -> Token | None:
        """Return the token with this text, expired or not, or None."""
        if time.monotonic() >= self._look_at:
            self._look_at = time.monotonic() + LOOK_SECONDS
            try:
                if _mark(self._path) != self._seen:
                    self._seen, self._tokens = self._read()
                    log.info("%s has changed: %d valid tokens", self._path, len(self._tokens))
            except (OSError, StartError) as error:
                log.error("cannot reload the tokens, keeping the old ones: %s", error)
        return find_token(text, self._tokens)

    def _read(self) -> tuple[tuple[int, int], list[Token]]:
        try:
            mark, text = _mark(self._path), self._path.read_text()
            mode = self._path.stat().st_mode
        except (OSError, UnicodeDecodeError) as error:
            raise StartError(f"{self._path}: cannot read the tracker's tokens: {error}") from error
        if mode & 0o077:
            raise StartError(f"{self._path}: readable by other users; run chmod 0400 {self._path}")
        return mark, parse_tokens(text, self._path)


def parse_tokens(text: str, path: Path) -> list[Token]:
    """Parse a token file. Raises StartError.

    Each line has a token, or ``sha256:`` and its digest in hex, optionally followed by a space and its end in ISO
    8601.
    """
    tokens = []
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        said, _, until = line.strip().partition(" ")
        fault = "" if said.startswith("sha256:") else fault_of(said)
        digest = said.removeprefix("sha256:") if said.startswith("sha256:") else digest_of(said)
        if not re.fullmatch(rf"[0-9a-f]{{{DIGEST_CHARACTERS}}}", digest):
            fault = "invalid digest after sha256: (64 hex digits expected)"
        try:
            end = datetime.fromisoformat(until.strip()) if until else None
        except ValueError:
            fault, end = "invalid time after the token; write 2030-01-31T12:00:00Z", None
        if fault:
            raise StartError(f"{path}, line {number}: {fault}")
        if end is not None and end.tzinfo is None:
            end = end.replace(tzinfo=UTC)
        tokens.append(Token(f"line {number}", "read", digest, None if end is None else end.timestamp()))
    if len(tokens) > MAX_TOKENS:
        raise StartError(f"{path}: contains {len(tokens)} tokens, at most {MAX_TOKENS} are allowed")
    return tokens


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
