"""HTTP server that remembers idempotency keys, for tests of the HTTP sink."""

from __future__ import annotations

import json
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class KeepingServer(ThreadingHTTPServer):
    """Server that answers with the ``planned`` statuses, then 200; it keeps the first body of each accepted key."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.planned: list[int] = []
        self.requests: list[dict[str, str]] = []
        self.bodies: dict[str, Any] = {}

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/batches"


class _Handler(BaseHTTPRequestHandler):
    server: KeepingServer

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.requests.append(dict(self.headers))
        status = self.server.planned.pop(0) if self.server.planned else 200
        if status == 200:
            self.server.bodies.setdefault(self.headers["Idempotency-Key"], json.loads(body))
        self.send_response(status)
        self.send_header("Location", "/elsewhere")
        self.end_headers()
        self.wfile.write(b"as planned\nand so on")

    def log_message(self, *_: Any) -> None:
        pass
