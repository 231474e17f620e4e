"""The tokens: files in the home (0600), drawn at the first start. To change one, remove its file and start again."""

from __future__ import annotations

import os
import secrets
import stat
from pathlib import Path

from heron_apiserver.core.access import Role
from heron_control.web.serving import StartError
from heron_runtime.files import replace_file

FILES = {Role.ADMIN: "admin-token", Role.READ: "read-token"}
MIN_CHARACTERS = 20


def load_tokens(home: Path) -> tuple[dict[Role, str], list[Path]]:
    """The token of each role, and the files that were made for it just now. Raises StartError."""
    tokens: dict[Role, str] = {}
    made = []
    for role, name in FILES.items():
        path = home / name
        try:
            if _make(path):
                made.append(path)
            tokens[role] = _read(path)
        except OSError as error:
            raise StartError(f"{path}: {error.strerror}") from error
    if tokens[Role.ADMIN] == tokens[Role.READ]:
        raise StartError(f"{home}: the two tokens are the same; remove one of the files")
    return tokens, made


def _make(path: Path) -> bool:
    """Draw a token unless there is one."""
    if path.exists():
        return False
    replace_file(path, secrets.token_urlsafe(32) + "\n", 0o600, durable=True)
    return True


def _read(path: Path) -> str:
    with path.open(encoding="utf-8", errors="replace") as file:
        if stat.S_IMODE(os.fstat(file.fileno()).st_mode) & 0o077:
            raise StartError(f"{path}: other users may read this token; chmod 0600 {path}, and better draw a new one")
        token = file.read(4096).strip()
    if len(token) < MIN_CHARACTERS or not token.isascii() or not token.isprintable() or " " in token:
        raise StartError(f"{path} holds no token of {MIN_CHARACTERS} characters or more; remove it to get a new one")
    return token
