"""Host names and addresses of this machine, and those that a server accepts."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable

UNDONE_HEADER = "heronry-undone"  # with a 503: the request had no effect, so it may be sent again


def hosts_of(host: str, allowed: Iterable[str]) -> list[str]:
    """Return the accepted host names: the given ones, and the address it listens on unless that is a wildcard."""
    try:
        everywhere = ipaddress.ip_address(host).is_unspecified
    except ValueError:
        everywhere = False
    return [*allowed, *([] if everywhere else [host])]


def is_loopback(host: str) -> bool:
    """Return True if only this machine can reach the address."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
