"""Relay before a ZooKeeper server that records the traffic, as a host on the network path could."""

from __future__ import annotations

import contextlib
import socket
import threading

from tests.zookeeper.relay import Relay


class ListeningRelay(Relay):
    """Relay on loopback; ``heard`` is what clients have sent."""

    def __init__(self, port: int) -> None:
        self._target = ("127.0.0.1", port)
        self.heard = bytearray()
        self.port = self.listen()

    def met(self, client: socket.socket) -> None:
        """Forward in both directions."""
        server = self._to(self._target)
        threading.Thread(target=self._pass_on, args=(client, server, self.heard), daemon=True).start()
        threading.Thread(target=self._pass_on, args=(server, client, bytearray()), daemon=True).start()

    @staticmethod
    def _pass_on(source: socket.socket, target: socket.socket, heard: bytearray) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                heard += data
                target.sendall(data)
            target.shutdown(socket.SHUT_RDWR)
