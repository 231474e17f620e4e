"""Free ports of 127.0.0.1 for servers that need their port before they start."""

from __future__ import annotations

import fcntl
import os
import random
import socket
import tempfile
from pathlib import Path

LOWEST_PORT = 15_000
ATTEMPTS = 64  # per port
_locks: dict[int, int] = {}  # descriptors of lock files by port, open as long as this process lives


def free_ports(count: int) -> list[int]:
    """Return ports that stay free until a server of this process takes them.

    A port that the kernel has chosen and that is closed again may become the source port of any connection. These
    ports lie below the kernel's ephemeral range, and a lock file keeps them from other test processes.

    Raises:
        RuntimeError: No free port was found.
    """
    return [_reserve_port() for _ in range(count)]


def free_port() -> int:
    """Return one port like ``free_ports``."""
    return _reserve_port()


def _reserve_port() -> int:
    end = _ephemeral_start()
    folder = Path(tempfile.gettempdir()) / f"heronry-test-ports-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    chooser = random.SystemRandom()  # independent of the seed of the tests: workers must choose differently
    for _ in range(ATTEMPTS):
        port = chooser.randrange(LOWEST_PORT, end)
        if port in _locks:
            continue
        lock = os.open(folder / str(port), os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            with socket.create_server(("127.0.0.1", port)):
                _locks[port] = lock
                return port
        except OSError:  # another test process or a server uses it
            os.close(lock)
    raise RuntimeError(f"no free port between {LOWEST_PORT} and {end}")


def _ephemeral_start() -> int:
    try:
        text = Path("/proc/sys/net/ipv4/ip_local_port_range").read_text()
    except OSError:
        return 32_768
    return max(int(text.split()[0]), LOWEST_PORT + 1000)
