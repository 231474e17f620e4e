"""Stores of files that fsspec speaks to: their classes, their options, how one is opened. Shared by the api server's
packages and by programs that read files at URLs.

fsspec and the library of a store are there only where somebody installed them; what is missing is named.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from heron_runtime.failures import UsageError
from heron_runtime.model.file_urls import scheme_of

SFTP = ("sftp", "ssh")
SILENCE = {"keepalive_interval": 15, "keepalive_count_max": 3, "connect_timeout": 30}  # seconds; then it is away


class LibraryMissing(Exception):
    """The text says what is missing; ``known``: something implements the scheme, and can be installed."""

    def __init__(self, text: str, known: bool = True) -> None:
        super().__init__(text)
        self.known = known


def store_class(scheme: str) -> type[Any]:
    """The store's class. Raises LibraryMissing."""
    try:
        import fsspec
    except ImportError:
        raise LibraryMissing("the library fsspec is missing") from None
    try:
        found: type[Any] = fsspec.get_filesystem_class(scheme)
    except ImportError as error:
        raise LibraryMissing(f"what {scheme}:// needs is missing: {error}") from None
    except ValueError:
        raise LibraryMissing(f"fsspec knows no {scheme}://", known=False) from None
    if scheme in SFTP and not found.__module__.startswith("sshfs"):
        # fsspec's own believes every host, whatever its key.
        raise LibraryMissing(f"what {scheme}:// needs is missing: sshfs")
    return found


def open_store(url: str, options: Mapping[str, Any]) -> tuple[Any, str]:
    """The file system and the path in it, of the caller's own: let go of, it is closed.

    Raises LibraryMissing, and what the store's library raises when nobody answers or believes us.
    """
    scheme = scheme_of(url)
    store_class(scheme)
    from fsspec.core import url_to_fs

    given = dict(options)
    if scheme in SFTP:
        given.setdefault("known_hosts", str(Path("~/.ssh/known_hosts").expanduser()))  # sshfs would check none
        given = {**SILENCE, **given}
    files, path = url_to_fs(url, **given, skip_instance_cache=True)
    return files, path


def options_in(file: Path, what: str) -> dict[str, Any]:
    """The options of a store, by fsspec's names. ``what``: how the file was named, for the cure. Raises UsageError."""
    try:
        found = json.loads(file.read_bytes())
    except OSError as error:
        raise UsageError(f"{file}: {error.strerror}", f"Give {what} a file that can be read.") from None
    except ValueError:
        found = None
    if not isinstance(found, dict):  # what it says may be secret
        raise UsageError(
            f"{file} is no JSON object", 'Write {"option": "value"}, as fsspec names the options of the store.'
        )
    return found
