"""Relay before a ZooKeeper server that breaks its first connections, each after a number of replies."""

from __future__ import annotations

import contextlib
import socket
import threading

from tests.zookeeper.relay import Relay


class BreakingRelay(Relay):
    """Relay on loopback. ``replies`` are the numbers for the first connections; later ones are not broken."""

    def __init__(self, target: tuple[str, int], replies: list[int]) -> None:
        self._target = target
        self._replies = list(replies)
        self.broken = 0
        self.hosts = f"127.0.0.1:{self.listen()}"

    def met(self, client: socket.socket) -> None:
        """Forward the connection for its number of replies."""
        server = self._to(self._target)
        most = self._replies.pop(0) if self._replies else None
        threading.Thread(target=self._forward, args=(client, server), daemon=True).start()
        threading.Thread(target=self._answer, args=(server, client, most), daemon=True).start()

    def _forward(self, client: socket.socket, server: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := client.recv(65536):
                server.sendall(data)
        self._end(client, server)

    def _answer(self, server: socket.socket, client: socket.socket, most: int | None) -> None:
        """Forward reply by reply: each is four bytes of length, and that many bytes."""
        count = 0
        with contextlib.suppress(OSError), server.makefile("rb") as stream:
            while most is None or count < most:
                length = stream.read(4)
                body = stream.read(int.from_bytes(length, "big"))
                if not body:
                    break
                client.sendall(length + body)
                count += 1
        if most is not None and count == most:
            self.broken += 1
        self._end(client, server)

    @staticmethod
    def _end(*both: socket.socket) -> None:
        for one in both:
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
