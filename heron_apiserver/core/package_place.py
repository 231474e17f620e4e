"""Where packages are kept, as ``--packages`` says it: the home, another folder, or a URL for fsspec.

A URL may carry credentials, and so may the options beside it. ``Place.shown`` is the URL as people may see it, and
``Place.redact`` takes out of foreign text whatever is secret; nothing else of a place is ever printed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote, urlsplit

from heron_runtime.failures import UsageError

OBJECT_STORES = frozenset({"s3", "s3a", "gs", "gcs", "az", "abfs", "abfss"})
"""An upload to these appears whole; to all others it goes under a temporary name, and is then moved."""
DISTRIBUTIONS = {
    "s3": "s3fs", "s3a": "s3fs", "gs": "gcsfs", "gcs": "gcsfs", "az": "adlfs", "abfs": "adlfs", "abfss": "adlfs",
    "sftp": "sshfs", "ssh": "sshfs", "hdfs": "pyarrow", "webhdfs": "requests", "smb": "smbprotocol",
}  # fmt: skip
NOT_KEPT = frozenset({"memory", "data", "http", "https", "zip", "tar", "filecache", "simplecache", "blockcache"})
_URL = re.compile(r"([a-z][a-z0-9+.-]*)://", re.ASCII)
_SECRET = re.compile(r"pass|secret|token|key|credential|account|sas|connection_string", re.IGNORECASE)
_LEAST = 4  # a shorter secret would blacken half of every text
HIDDEN = "***"


@dataclass(frozen=True, slots=True)
class Place:
    """``url`` is empty for a folder, ``folder`` for a URL; with neither the packages lie in the home."""

    folder: str = ""
    url: str = field(default="", repr=False)
    options: Mapping[str, Any] = field(default_factory=dict, repr=False)

    @property
    def scheme(self) -> str:
        """Of the URL."""
        return self.url.partition("://")[0]

    @property
    def shown(self) -> str:
        """As people may see it: no user, no password, no query."""
        if not self.url:
            return self.folder or "the home"
        rest = self.url.partition("://")[2].partition("?")[0].partition("#")[0]
        where, slash, path = rest.partition("/")
        return f"{self.scheme}://{where.rpartition('@')[2]}{slash}{path if '@' not in path else HIDDEN}"

    def redact(self, text: str) -> str:
        """Foreign text without what is secret here."""
        for secret in sorted(self._secrets(), key=len, reverse=True):
            text = text.replace(secret, HIDDEN)
        return text

    def _secrets(self) -> set[str]:
        found = set(_leaves(self.options, secret=False))
        if self.url and self.url != self.shown:
            found.add(self.url)
            rest = self.url.partition("://")[2]
            user, at, _ = rest.rpartition("@")
            if at:
                found |= {user, user.partition(":")[2]}
            found.add(self.url.partition("?")[2])
        found |= {unquote(secret) for secret in found}
        return {secret for secret in found if len(secret) >= _LEAST}


def _leaves(value: Any, *, secret: bool) -> Iterator[str]:
    """Texts below a key that sounds secret."""
    if isinstance(value, Mapping):
        for key, below in value.items():
            yield from _leaves(below, secret=secret or _SECRET.search(str(key)) is not None)
    elif isinstance(value, list):
        for below in value:
            yield from _leaves(below, secret=secret)
    elif secret and isinstance(value, str):
        yield value


def place_of(text: str, options: Mapping[str, Any] | None = None) -> Place:
    """What ``--packages`` means. Raises UsageError, which shows no more of the text than its scheme."""
    given = dict(options or {})
    if not text:
        if given:
            raise UsageError("--packages-options is for a --packages URL", "Give --packages, or leave it out.")
        return Place()
    scheme = _URL.match(text)
    if scheme is None:
        if "://" in text or "::" in text:
            raise UsageError("--packages is no URL of a store", "Give SCHEME://…, or a folder's path.")
        if given:
            raise UsageError("--packages-options is for a --packages URL", "A folder takes none; leave it out.")
        if not text.startswith("/") or "\0" in text:
            raise UsageError("--packages is no absolute path and no URL", "Give /a/folder, or s3://bucket/prefix.")
        return Place(folder=text)
    name = scheme[1]
    if name in NOT_KEPT:
        raise UsageError(
            f"--packages {name}://… keeps nothing that another api server, or the next one, could read",
            "Give a store that keeps files: a folder, s3://, gs://, hdfs://, sftp://, file://.",
        )
    try:
        urlsplit(text)
    except ValueError:
        raise UsageError(f"--packages {name}://… is no URL", "Look at its host and its brackets.") from None
    if "::" in text or not text[scheme.end() :].strip("/") or any(part == ".." for part in text.split("/")):
        raise UsageError(
            f"--packages {name}://… names no place", "Give SCHEME://HOST-OR-BUCKET/FOLDER, without '::' and '..'."
        )
    return Place(url=text, options=given)


def pip_line(scheme: str, distribution: str = "") -> str:
    """What to type for a store's library."""
    return f"pip install 'heronry[uploaders]' {distribution or DISTRIBUTIONS.get(scheme, '')}".rstrip()
