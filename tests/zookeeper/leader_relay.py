"""Relay to the leading API server, like the balancer (``deploy/balancer``).

Without a leader, or if it breaks off, the relay answers with the balancer's own files.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Sequence
from pathlib import Path

import httpx

from tests.support.api_server_process import ROOT
from tests.zookeeper.relay import Relay

ANSWERS = ROOT / "deploy" / "balancer"


def leads(port: int) -> bool:
    """Return True if the API server leads, as the balancer checks it."""
    try:
        return httpx.get(f"http://127.0.0.1:{port}/leader", timeout=2, trust_env=False).status_code == 200
    except httpx.HTTPError:
        return False


class LeaderRelay(Relay):
    """Relay on loopback. ``ports`` are those of the API servers, and may be changed."""

    def __init__(self, ports: Sequence[int]) -> None:
        self.ports = list(ports)
        self.url = f"http://127.0.0.1:{self.listen()}"

    def met(self, client: socket.socket) -> None:
        """Forward the connection to the current leader."""
        threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with contextlib.suppress(OSError), client:
            port = next((port for port in self.ports if leads(port)), None)
            if port is None:
                self._say(client, ANSWERS / "nobody.http")
                return
            with socket.create_connection(("127.0.0.1", port)) as server:
                threading.Thread(target=self._pass_on, args=(client, server), daemon=True).start()
                if not self._pass_on(server, client):
                    self._say(client, ANSWERS / "broken.http")

    @staticmethod
    def _say(client: socket.socket, file: Path) -> None:
        client.sendall(file.read_bytes())
        client.shutdown(socket.SHUT_WR)
        while client.recv(65536):  # read the rest of the request, or the answer would be discarded with it
            pass

    @staticmethod
    def _pass_on(source: socket.socket, target: socket.socket) -> int:
        """Forward bytes; return how many."""
        passed = 0
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                target.sendall(data)
                passed += len(data)
            if passed:
                target.shutdown(socket.SHUT_WR)
        return passed
