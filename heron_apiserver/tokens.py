"""Tokens of the API server: ``tokens.json`` in the home (mode 0600) holds the SHA-256 of each.

The first two, ``admin`` and ``read``, are created at the first start and stored in one file each (``admin-token``,
``read-token``), which may be deleted after login. A token file that exists at a start is imported under its name, so
files of older servers still work, and an administrator who lost every token can write one. All other tokens are
managed through the API while it serves.
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
from heron_control.web.tokens import Token, digest_of, draw, fault_of, find_token
from heron_runtime.failures import ExistsAlready, NotFound
from heron_runtime.files import replace_file

FILE = "tokens.json"
INITIAL_TOKEN_FILES = {CallerRole.ADMIN: "admin-token", CallerRole.READ: "read-token"}
MIN_CHARACTERS = 20
MAX_TOKENS = 256


class TokenBook:
    """Tokens of one home. Thread-safe; changes are on disk before a call returns."""

    def __init__(self, home: Path) -> None:
        """Read the tokens, import token files and create missing ones. Raises StartError."""
        self._home = home
        self._lock = threading.Lock()
        self.created_files: list[Path] = []  # token files created by this start
        first = not (home / FILE).exists()
        try:
            self._tokens = self._read()
            before = dict(self._tokens)
            for role, name in INITIAL_TOKEN_FILES.items():
                self._import_file(role, home / name, first)
            if not self._has_permanent_admin(self._tokens):
                raise StartError(
                    f"no admin token is left: write one of {MIN_CHARACTERS} characters or more into "
                    f"{home / INITIAL_TOKEN_FILES[CallerRole.ADMIN]} (mode 0600) and start again"
                )
            if self._tokens != before:
                self._write(self._tokens)
        except OSError as error:
            raise StartError(f"{error.filename or home}: {error.strerror}") from error

    def find(self, text: str) -> Token | None:
        """Return the token with this text, expired or not, or None."""
        return find_token(text, self._tokens.values())

    def list_all(self) -> list[Token]:
        """Return all tokens, sorted by name."""
        return [self._tokens[name] for name in sorted(self._tokens)]

    def create(self, name: str, role: CallerRole, expires: float | None) -> str:
        """Create a token and return its text, which is not stored. Raises ExistsAlready, OSError."""
        text = draw()
        with self._lock:
            if name in self._tokens:
                raise ExistsAlready(
                    f"token {name!r}: exists already", "Choose another name, or revoke the token first."
                )
            if len(self._tokens) >= MAX_TOKENS:
                raise ExistsAlready(f"the limit of {MAX_TOKENS} tokens is reached", "Revoke one of them.")
            self._write({**self._tokens, name: Token(name, role, digest_of(text), expires)})
        return text

    def revoke(self, name: str) -> None:
        """Revoke a token immediately. Raises NotFound, OSError, ExistsAlready for the last admin token."""
        with self._lock:
            if name not in self._tokens:
                raise NotFound(f"token {name!r}: not found")
            remaining = {key: token for key, token in self._tokens.items() if key != name}
            if self._has_permanent_admin(self._tokens) and not self._has_permanent_admin(remaining):
                raise ExistsAlready(
                    f"{name!r} is the last admin token without expiry", "Create another admin token first."
                )
            for role, file in INITIAL_TOKEN_FILES.items():
                if role == name:  # first, so that the next start does not import it again
                    (self._home / file).unlink(missing_ok=True)
            self._write(remaining)

    def _has_permanent_admin(self, tokens: dict[str, Token]) -> bool:
        return any(token.scope == CallerRole.ADMIN and token.expires is None for token in tokens.values())

    def _write(self, tokens: dict[str, Token]) -> None:
        text = json.dumps({"tokens": [asdict(token) for token in tokens.values()]}, indent=1) + "\n"
        replace_file(self._home / FILE, text, 0o600, durable=True)
        self._tokens = tokens

    def _read(self) -> dict[str, Token]:
        path = self._home / FILE
        if not path.exists():
            return {}
        _check_mode(path)
        try:
            rows = json.loads(path.read_bytes())["tokens"]
            tokens = [
                Token(str(r["name"]), CallerRole(r["scope"]), str(r["digest"]), _time(r["expires"])) for r in rows
            ]
        except (ValueError, KeyError, TypeError) as error:
            raise StartError(f"{path}: damaged ({error}); restore it, or delete it to create new tokens") from error
        return {token.name: token for token in tokens if token.scope in SCOPES}

    def _import_file(self, role: CallerRole, path: Path, first: bool) -> None:
        if not path.exists():
            if not first:
                return
            replace_file(path, draw() + "\n", 0o600, durable=True)
            self.created_files.append(path)
        _check_mode(path)
        with path.open(encoding="utf-8", errors="replace") as file:
            text = file.read(4096).strip()
        fault = fault_of(text, MIN_CHARACTERS)
        if fault:
            raise StartError(f"{path}: invalid token: {fault}; write another token, or delete the file")
        owner = self.find(text)
        if owner is not None and owner.name != role:
            raise StartError(f"{path}: contains the token {owner.name!r}; write another token, or delete the file")
        self._tokens = {**self._tokens, role: Token(role, role, digest_of(text))}


def expiry_after(seconds: int | None) -> float | None:
    """Return the end of a token created now in seconds since the epoch; None means never."""
    return None if seconds is None else time.time() + seconds


def _time(value: object) -> float | None:
    return None if value is None else float(str(value))


def _check_mode(path: Path) -> None:
    if stat.S_IMODE(os.stat(path).st_mode) & 0o077:
        raise StartError(f"{path}: readable by other users; run chmod 0600 {path} and replace the tokens")
