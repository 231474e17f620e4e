"""A relay before a ZooKeeper server that hears all that passes, as whoever sits on the network between does."""

from __future__ import annotations

import contextlib
import socket
import threading


class ListeningRelay:
    """Listens on loopback; ``heard`` is what clients have said."""

    def __init__(self, port: int) -> None:
        self._target = ("127.0.0.1", port)
        self._sockets: list[socket.socket] = []
        self.heard = bytearray()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        """End everything."""
        for one in (self._listener, *self._sockets):
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                server = socket.create_connection(self._target)
                self._sockets += [client, server]
                threading.Thread(target=self._pass_on, args=(client, server, self.heard), daemon=True).start()
                threading.Thread(target=self._pass_on, args=(server, client, bytearray()), daemon=True).start()

    @staticmethod
    def _pass_on(source: socket.socket, target: socket.socket, heard: bytearray) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                heard += data
                target.sendall(data)
            target.shutdown(socket.SHUT_RDWR)
