"""Base class of relays: a port on loopback, the sockets they hold, and their end."""

from __future__ import annotations

import contextlib
import socket
import threading


class Relay:
    """Base class of relays: subclasses call ``listen`` last in ``__init__`` and implement ``met``."""

    def listen(self) -> int:
        """Start listening; return the port."""
        self._sockets: list[socket.socket] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        threading.Thread(target=self._accept, daemon=True).start()
        port: int = self._listener.getsockname()[1]
        return port

    def met(self, client: socket.socket) -> None:
        """Handle a client. Its threads keep running; OSError ends the relay."""
        raise NotImplementedError

    def close(self) -> None:
        """Close all sockets."""
        for one in (self._listener, *self._sockets):
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                self._sockets.append(client)
                self.met(client)

    def _to(self, target: tuple[str, int]) -> socket.socket:
        """Open a connection that ends with the relay."""
        server = socket.create_connection(target)
        self._sockets.append(server)
        return server
