"""Masking of secrets in names, texts and configurations that other people may read.

One list of secret names is used by the tracker, for URLs of file stores and for error messages. When in doubt, a value
is hidden. Every function is linear in the length of its text. Pure.
"""

from __future__ import annotations

import re

HIDDEN = "********"
_SECRET = re.compile(
    r"passw|passphrase|passcode|pass$|pwd|secret|token|credential|cookie|signature|jwt|bearer|connection.?string"
    r"|auth(?!or(?!i))|digest$|^sig$|^sas$|^key$|^account|(?:private|api|access|account|shared|encryption|signing).?key",
    re.IGNORECASE,
)
_MAX_NAME = 64  # characters of a name before "=" or ":"
_NAME = re.compile(r"[\w.\-]*\Z")
_SPACE = re.compile(r"(\s+)")
_AUTHORITY = re.compile(r"[^/?#]*")
_HOST_AND_PORT = re.compile(r"(?:\[[^\]]*\]|[^:]*)(?::\d*)?")
_SEPARATOR = re.compile(r"[=:]")
_LEAD = re.compile(r"\s*[\"']?")
_END_OF_VALUE = {"=": re.compile(r"[&;,\s\"']"), ":": re.compile(r"[&;,\n\"'}\]]")}


def is_secret(name: str) -> bool:
    """Return True if the value of a setting, an option or a query parameter of this name must not be shown."""
    return _SECRET.search(name) is not None


def mask(text: str) -> str:
    """Replace the secrets in a text: credentials in URLs and DSNs, and values of names that are secret."""
    if "@" in text:
        text = "".join(_mask_word(word) if "@" in word else word for word in _SPACE.split(text))
    return _mask_values(text)


def _mask_word(word: str) -> str:
    """Replace the user and password of each URL, or of one DSN, in a text without spaces."""
    first, *rest = word.split("://")
    if rest:
        return "://".join([first, *map(_mask_user, rest)])
    user, _, host = word.rpartition("@")
    return f"{HIDDEN}@{host}" if ":" in user else word


def _mask_user(rest: str) -> str:
    """Replace the user at the start of what follows the scheme of a URL."""
    authority = _AUTHORITY.match(rest)
    start = authority[0] if authority else ""
    user, at, _ = start.rpartition("@")
    if not at and "@" in rest and not _HOST_AND_PORT.fullmatch(start):
        user = rest.rpartition("@")[0]  # a password with a "/", "?" or "#" that is not encoded
    return HIDDEN + rest[len(user) :] if user else rest


def _mask_values(text: str) -> str:
    """Replace VALUE in ``NAME=VALUE`` and ``NAME: VALUE`` where the name is secret."""
    shown: list[str] = []
    done = 0
    for separator in _SEPARATOR.finditer(text):
        at = separator.start()
        if at < done:
            continue
        before = text[max(done, at - _MAX_NAME) : at].rstrip("\"' ")
        name = _NAME.search(before)
        if name is None or not is_secret(name[0]) or text.startswith("://", at):
            continue
        lead = _LEAD.match(text, at + 1)
        begin = lead.end() if lead else at + 1
        end = _END_OF_VALUE[separator[0]].search(text, begin)
        stop = end.start() if end else len(text)
        if stop > begin:
            shown += [text[done:begin], HIDDEN]
            done = stop
    return "".join([*shown, text[done:]])
