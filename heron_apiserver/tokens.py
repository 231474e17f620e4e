"""The tokens: ``tokens.json`` in the home (0600) has the SHA-256 of each, never a token itself.

The first two, ``admin`` and ``read``, are drawn at the first start and handed over in a file each (``admin-token``,
``read-token``), which may be removed once somebody is logged in. A file that is there at a start is taken in under
its name: so the files of an older server go on, and an administrator who has lost every token writes one. All else
goes over the api, while it serves.
"""

from __future__ import annotations

import json
import os
import stat
import threading
import time
from dataclasses import asdict
from pathlib import Path

from heron_apiserver.access import SCOPES, CallerRole
from heron_control.web.serving import StartError
from heron_control.web.tokens import Token, digest_of, draw, fault_of, known
from heron_runtime.failures import ExistsAlready, NotFound
from heron_runtime.files import replace_file

FILE = "tokens.json"
INITIAL_TOKEN_FILES = {CallerRole.ADMIN: "admin-token", CallerRole.READ: "read-token"}
MIN_CHARACTERS = 20
MAX_TOKENS = 256


class TokenBook:
    """The tokens of one home. Thread-safe; what is changed is on the disk before the call returns."""

    def __init__(self, home: Path) -> None:
        """Read them, take in what lies in files, draw what is missing. Raises StartError."""
        self._home = home
        self._lock = threading.Lock()
        self.made: list[Path] = []  # files with tokens that were drawn just now
        first = not (home / FILE).exists()
        try:
            self._tokens = self._read()
            before = dict(self._tokens)
            for role, name in INITIAL_TOKEN_FILES.items():
                self._take_in(role, home / name, first)
            if not self._rules(self._tokens):
                raise StartError(
                    f"no admin token is left: write one of {MIN_CHARACTERS} characters or more into "
                    f"{home / INITIAL_TOKEN_FILES[CallerRole.ADMIN]} (mode 0600) and start again"
                )
            if self._tokens != before:
                self._keep(self._tokens)
        except OSError as error:
            raise StartError(f"{error.filename or home}: {error.strerror}") from error

    def known(self, text: str) -> Token | None:
        """The token that was shown, expired or not."""
        return known(text, self._tokens.values())

    def all(self) -> list[Token]:
        """Every one, by name."""
        return [self._tokens[name] for name in sorted(self._tokens)]

    def create(self, name: str, role: CallerRole, expires: float | None) -> str:
        """Draw one; the token, which is told this once. Raises ExistsAlready, OSError."""
        text = draw()
        with self._lock:
            if name in self._tokens:
                raise ExistsAlready(f"there is a token {name!r}", "Take another name, or revoke that one first.")
            if len(self._tokens) >= MAX_TOKENS:
                raise ExistsAlready(f"there are {MAX_TOKENS} tokens, which is the most", "Revoke one of them.")
            self._keep({**self._tokens, name: Token(name, role, digest_of(text), expires)})
        return text

    def revoke(self, name: str) -> None:
        """It holds no longer, from now on. Raises NotFound, ExistsAlready for the last admin token, OSError."""
        with self._lock:
            if name not in self._tokens:
                raise NotFound(f"there is no token {name!r}")
            left = {key: token for key, token in self._tokens.items() if key != name}
            if self._rules(self._tokens) and not self._rules(left):
                raise ExistsAlready(
                    f"{name!r} is the last admin token that holds for ever", "Create another of scope admin first."
                )
            for role, file in INITIAL_TOKEN_FILES.items():
                if role == name:  # first: else the next start would take it in again
                    (self._home / file).unlink(missing_ok=True)
            self._keep(left)

    def _rules(self, tokens: dict[str, Token]) -> bool:
        return any(token.scope == CallerRole.ADMIN and token.expires is None for token in tokens.values())

    def _keep(self, tokens: dict[str, Token]) -> None:
        text = json.dumps({"tokens": [asdict(token) for token in tokens.values()]}, indent=1) + "\n"
        replace_file(self._home / FILE, text, 0o600, durable=True)
        self._tokens = tokens

    def _read(self) -> dict[str, Token]:
        path = self._home / FILE
        if not path.exists():
            return {}
        _guard(path)
        try:
            rows = json.loads(path.read_bytes())["tokens"]
            found = [Token(str(r["name"]), CallerRole(r["scope"]), str(r["digest"]), _time(r["expires"])) for r in rows]
        except (ValueError, KeyError, TypeError) as error:
            raise StartError(
                f"{path} is damaged ({error}); restore it, or remove it to begin with new tokens"
            ) from error
        return {token.name: token for token in found if token.scope in SCOPES}

    def _take_in(self, role: CallerRole, path: Path, first: bool) -> None:
        if not path.exists():
            if not first:
                return
            replace_file(path, draw() + "\n", 0o600, durable=True)
            self.made.append(path)
        _guard(path)
        with path.open(encoding="utf-8", errors="replace") as file:
            text = file.read(4096).strip()
        fault = fault_of(text, MIN_CHARACTERS)
        if fault:
            raise StartError(f"{path} holds no token: {fault}; write another, or remove the file")
        owner = self.known(text)
        if owner is not None and owner.name != role:
            raise StartError(f"{path} holds the token {owner.name!r}, too; write another, or remove the file")
        self._tokens = {**self._tokens, role: Token(role, role, digest_of(text))}


def expiry(seconds: int | None) -> float | None:
    """When a token that is drawn now ends, seconds since the epoch; None for never."""
    return None if seconds is None else time.time() + seconds


def _time(value: object) -> float | None:
    return None if value is None else float(str(value))


def _guard(path: Path) -> None:
    if stat.S_IMODE(os.stat(path).st_mode) & 0o077:
        raise StartError(f"{path}: other users may read this; chmod 0600 {path}, and better draw new tokens")
