"""URLs of file stores in fsspec's notation: their secrets, the libraries that read them, and their features. Pure.

A URL and the options that belong to it may contain credentials. ``shown_url`` returns the URL without secrets, and
``redacted`` removes secrets from foreign text.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from heron_runtime.model.masking import HIDDEN, is_secret, mask

OBJECT_STORES = frozenset({"s3", "s3a", "gs", "gcs", "az", "abfs", "abfss"})
"""An upload to these appears whole, and is never appended to."""
APPENDED = frozenset({"sftp", "ssh", "hdfs", "webhdfs", "smb", "memory"})
"""A file there may grow at its end."""
SINGLE = frozenset({"http", "https"})
"""No folders: a URL is one file."""
DISTRIBUTIONS = {
    "s3": "s3fs", "s3a": "s3fs", "gs": "gcsfs", "gcs": "gcsfs", "az": "adlfs", "abfs": "adlfs", "abfss": "adlfs",
    "sftp": "sshfs", "ssh": "sshfs", "hdfs": "pyarrow", "webhdfs": "requests", "smb": "smbprotocol",
    "http": "aiohttp", "https": "aiohttp",
}  # fmt: skip
_LEAST = 4  # characters; hiding a shorter secret would hide much of every text


def scheme_of(url: str) -> str:
    """Return the scheme of a URL; empty for other text."""
    scheme, separator, _ = url.partition("://")
    return scheme if separator else ""


def shown_url(url: str) -> str:
    """Return a URL in a form that is safe to show, without user, password and query."""
    rest = url.partition("://")[2].partition("?")[0].partition("#")[0]
    where, slash, path = rest.partition("/")
    return f"{scheme_of(url)}://{where.rpartition('@')[2]}{slash}{path if '@' not in path else HIDDEN}"


def redacted(text: str, url: str, options: Mapping[str, Any]) -> str:
    """Return foreign text without the secrets in a URL (which may be empty) and in options."""
    for secret in sorted(_secrets(url, options), key=len, reverse=True):
        text = text.replace(secret, HIDDEN)
    return mask(text)


def _secrets(url: str, options: Mapping[str, Any]) -> set[str]:
    secrets = set(_leaves(options, secret=False))
    if url and url != shown_url(url):
        secrets.add(url)
        rest = url.partition("://")[2]
        user, at, _ = rest.rpartition("@")
        if at:
            secrets |= {user, user.partition(":")[2]}
        secrets.add(url.partition("?")[2])
    secrets |= {unquote(secret) for secret in secrets}
    return {secret for secret in secrets if len(secret) >= _LEAST}


def _leaves(value: Any, *, secret: bool) -> Iterator[str]:
    """Yield the strings below keys with secret names."""
    if isinstance(value, Mapping):
        for key, below in value.items():
            yield from _leaves(below, secret=secret or is_secret(str(key)))
    elif isinstance(value, list):
        for below in value:
            yield from _leaves(below, secret=secret)
    elif secret and isinstance(value, str):
        yield value


def source_problem(url: str) -> str:
    """Return the reason why a program must not use this URL, without its secrets, or "" if it may."""
    scheme = scheme_of(url)
    try:
        parts = urlsplit(url)
        secret = parts.password or any(is_secret(name) for name, _ in parse_qsl(parts.query, True))
    except ValueError:
        return f"invalid URL {scheme}://…: check its host and its brackets"
    if secret:
        return (
            f"the URL {shown_url(url)} holds a secret, which plans and logs would show: put it into a JSON file of "
            "the store's options on each host, and name that: files(…, options='/path/options.json')"
        )
    if "::" in url or not url[len(scheme) + 3 :].strip("/") or ".." in url.split("/"):
        return f"the URL {shown_url(url)} names no place: write SCHEME://HOST-OR-BUCKET/PATH, without '::' and '..'"
    return ""
