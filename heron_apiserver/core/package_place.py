"""Where packages are kept, as ``--packages`` says it: the home, another folder, or a URL for fsspec.

A URL may carry credentials, and so may the options beside it (``heron_runtime/model/file_urls.py``): nothing of a place
is ever printed but what ``Place.shown`` and ``Place.redact`` give.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from heron_runtime.failures import UsageError
from heron_runtime.model.file_urls import DISTRIBUTIONS, redacted, scheme_of, shown_url

NOT_KEPT = frozenset({"memory", "data", "http", "https", "zip", "tar", "filecache", "simplecache", "blockcache"})
_URL = re.compile(r"([a-z][a-z0-9+.-]*)://", re.ASCII)


@dataclass(frozen=True, slots=True)
class Place:
    """``url`` is empty for a folder, ``folder`` for a URL; with neither the packages lie in the home."""

    folder: str = ""
    url: str = field(default="", repr=False)
    options: Mapping[str, Any] = field(default_factory=dict, repr=False)

    @property
    def scheme(self) -> str:
        """Of the URL."""
        return scheme_of(self.url)

    @property
    def shown(self) -> str:
        """As people may see it: no user, no password, no query."""
        return shown_url(self.url) if self.url else self.folder or "the home"

    def redact(self, text: str) -> str:
        """Foreign text without what is secret here."""
        return redacted(text, self.url, self.options)


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
