"""HTTP server of a folder for tests, with range requests and ETags.

It counts the bytes it sends. Files whose name begins with ``secret`` are forbidden.
"""

from __future__ import annotations

import contextlib
import re
import threading
from collections.abc import Iterator
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

_RANGE = re.compile(r"bytes=(\d+)-(\d+)")


class RangeServer:
    """HTTP server. ``given``: bytes of bodies so far. ``ranges``: False disables range requests."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.given, self.ranges = folder, 0, True
        self.http = _Server(("127.0.0.1", 0), partial(_Handler, self))

    def url(self, name: str) -> str:
        """Return the URL of a file in the folder."""
        return f"http://127.0.0.1:{self.http.server_address[1]}/{name}"


class _Server(ThreadingHTTPServer):
    def handle_error(self, request: object, client_address: object) -> None:
        """Ignore errors: the client was killed."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def __init__(self, server: RangeServer, *arguments: object) -> None:
        self.of = server
        super().__init__(*arguments)  # type: ignore[arg-type]  # as socketserver gives them

    def do_HEAD(self) -> None:
        """Answer as GET, without the body."""
        self._answer(False)

    def do_GET(self) -> None:
        """Send the file, or a range of it."""
        self._answer(True)

    def _answer(self, body: bool) -> None:
        path = self.of.folder / self.path.lstrip("/")
        if not path.is_file() or path.name.startswith("secret"):
            self.send_response(403 if path.is_file() else 404)
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        data, found = path.read_bytes(), path.stat()
        wanted = _RANGE.fullmatch(self.headers.get("Range", "")) if self.of.ranges else None
        self.send_response(200 if wanted is None else 206)
        self.send_header("ETag", f'"{found.st_size}-{found.st_mtime_ns}"')
        self.send_header("Accept-Ranges", "bytes" if self.of.ranges else "none")
        if wanted is not None:
            first, last = map(int, wanted.groups())
            self.send_header("Content-Range", f"bytes {first}-{min(last, len(data) - 1)}/{len(data)}")
            data = data[first : last + 1]
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if body:
            self.of.given += len(data)
            with contextlib.suppress(OSError):  # the client has disconnected
                self.wfile.write(data)

    def log_message(self, format: str, *arguments: object) -> None:
        """Suppress logging."""


@contextlib.contextmanager
def range_server(folder: Path) -> Iterator[RangeServer]:
    """Yield a running server."""
    made = RangeServer(folder)
    thread = threading.Thread(target=made.http.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield made
    finally:
        made.http.shutdown()
        thread.join()
        made.http.server_close()
