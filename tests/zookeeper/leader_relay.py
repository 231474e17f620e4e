"""A relay in front of api servers that does what the balancer (``deploy/balancer``) does: the one that leads gets all.

Where there is none, and where one breaks off in the middle, it answers with the balancer's own files.
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
    """What the balancer's check finds."""
    try:
        return httpx.get(f"http://127.0.0.1:{port}/leader", timeout=2, trust_env=False).status_code == 200
    except httpx.HTTPError:
        return False


class LeaderRelay(Relay):
    """Listens on loopback. ``ports`` are those of the api servers, and may be changed."""

    def __init__(self, ports: Sequence[int]) -> None:
        self.ports = list(ports)
        self.url = f"http://127.0.0.1:{self.listen()}"

    def met(self, client: socket.socket) -> None:
        """Whoever leads now gets all that it says."""
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
        while client.recv(65536):  # what it still sends, or the answer would be thrown away with it
            pass

    @staticmethod
    def _pass_on(source: socket.socket, target: socket.socket) -> int:
        """How many bytes passed."""
        passed = 0
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                target.sendall(data)
                passed += len(data)
            if passed:
                target.shutdown(socket.SHUT_WR)
        return passed
