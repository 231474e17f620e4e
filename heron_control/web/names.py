"""Host names and addresses: which are this machine's own, and which a server answers to; a header that servers, the
balancer and clients know."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable

UNDONE_HEADER = "heronry-undone"  # with a 503: nothing was done, whatever was asked, so it may be sent again


def hosts_of(host: str, allowed: Iterable[str]) -> list[str]:
    """The host names to answer to: what was given, and the address it listens on unless that is every address."""
    try:
        everywhere = ipaddress.ip_address(host).is_unspecified
    except ValueError:
        everywhere = False
    return [*allowed, *([] if everywhere else [host])]


def is_loopback(host: str) -> bool:
    """True if only this machine can reach it."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
