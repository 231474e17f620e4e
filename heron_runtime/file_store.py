"""File stores accessed through fsspec, for packages of the API server and for URLs in programs.

fsspec and the library of a store are optional. The error for a missing library names it.
"""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from heron_runtime.failures import UsageError
from heron_runtime.model.file_urls import scheme_of

END_SECONDS = 5.0
_one_at_a_time = threading.Lock()
SFTP = ("sftp", "ssh")
SILENCE = {"keepalive_interval": 15, "keepalive_count_max": 3, "connect_timeout": 30}  # seconds; then it is away


class LibraryMissing(Exception):
    """Missing library of a store. ``known`` is True if an installable library implements the scheme."""

    def __init__(self, text: str, known: bool = True) -> None:
        super().__init__(text)
        self.known = known


def store_class(scheme: str) -> type[Any]:
    """Return the fsspec class of a URL scheme. Raises LibraryMissing."""
    try:
        import fsspec
    except ImportError:
        raise LibraryMissing("the library fsspec is missing") from None
    try:
        store: type[Any] = fsspec.get_filesystem_class(scheme)
    except ImportError as error:
        raise LibraryMissing(f"what {scheme}:// needs is missing: {error}") from None
    except ValueError:
        raise LibraryMissing(f"fsspec does not support {scheme}://", known=False) from None
    if scheme in SFTP and not store.__module__.startswith("sshfs"):
        # fsspec's own implementation accepts every host key.
        raise LibraryMissing(f"what {scheme}:// needs is missing: sshfs")
    return store


class OpenStore:
    """Open fsspec file system (``files``) and the path of a URL in it (``root``).

    An asynchronous file system gets an event loop and a thread of its own, since those of fsspec live as long as the
    process. ``close`` ends both, and their connections.
    """

    def __init__(self, url: str, options: Mapping[str, Any]) -> None:
        """Open the store. Raises LibraryMissing, and errors of the library for unreachable stores and rejected keys."""
        scheme = scheme_of(url)
        kind = store_class(scheme)
        from fsspec.asyn import AsyncFileSystem

        given = dict(options)
        self.files: Any = None
        if scheme in SFTP:
            given.setdefault("known_hosts", str(Path("~/.ssh/known_hosts").expanduser()))  # sshfs would check none
            given = {**SILENCE, **given}
        self._loop: asyncio.AbstractEventLoop | None = None
        if issubclass(kind, AsyncFileSystem):
            self._loop = asyncio.new_event_loop()
            self._thread = threading.Thread(target=self._loop.run_forever, name=f"heronry-{scheme}", daemon=True)
            self._thread.start()
        try:
            self.files, self.root = _made(url, given, self._loop)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Release the store. Idempotent. The caller must close all files of the store first."""
        self.files = None
        loop, self._loop = self._loop, None
        if loop is None:
            return
        ending = asyncio.run_coroutine_threadsafe(_end(), loop)
        with suppress(TimeoutError):
            ending.result(END_SECONDS)
        loop.call_soon_threadsafe(loop.stop)
        self._thread.join(END_SECONDS)
        if not self._thread.is_alive():
            loop.close()


def _made(url: str, options: Mapping[str, Any], loop: asyncio.AbstractEventLoop | None) -> tuple[Any, str]:
    """Return the fsspec file system and path of a URL. An asynchronous file system runs in `loop`."""
    from fsspec import asyn
    from fsspec.core import url_to_fs

    with _one_at_a_time:
        before = asyn.loop[0]
        asyn.loop[0] = loop or before  # not every library passes on the argument ``loop``
        try:
            files, path = url_to_fs(url, **options, skip_instance_cache=True)
        finally:
            asyn.loop[0] = before
    return files, path


async def _end() -> None:
    """End remaining tasks and connections of a library. The traceback of an error may keep its objects alive."""
    tasks = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    for transport in list(getattr(asyncio.get_running_loop(), "_transports", {}).values()):
        transport.abort()
    await asyncio.sleep(0)
    await asyncio.sleep(0)  # a transport is closed by a call that follows
    await asyncio.get_running_loop().shutdown_asyncgens()


def options_in(file: Path, what: str) -> dict[str, Any]:
    """Read the fsspec options of a store from a JSON file.

    Args:
        file: The file to read.
        what: The option or setting that named the file, for the hint of an error.

    Raises:
        UsageError: The file cannot be read or is not a JSON object.
    """
    try:
        options = json.loads(file.read_bytes())
    except OSError as error:
        raise UsageError(f"{file}: {error.strerror}", f"Give {what} a file that can be read.") from None
    except ValueError:
        options = None
    if not isinstance(options, dict):  # what it says may be secret
        raise UsageError(
            f"{file} is not a JSON object",
            'Write {"option": "value"}, with option names of the fsspec file system.',
        )
    return options
