"""Name server of the test cluster for addresses of Services and of the Pods of headless ones.

``python k8s_dns.py PKI ADDRESS`` answers at ``ADDRESS:53``. It polls the API server three times per second, and keeps
the last answers during an outage. Debian's Kubernetes has no name server, and CoreDNS is not packaged.
"""

from __future__ import annotations

import http.client
import json
import socket
import ssl
import struct
import sys
import threading
import time
from pathlib import Path
from typing import Any

DOMAIN = "svc.cluster.local"
LOOK_SECONDS = 0.3
TTL_SECONDS = 1
_A, _IN = 1, 1
_NO_ERROR, _NO_SUCH_NAME = 0, 3


class Names:
    """Names according to the last answer of the API server."""

    def __init__(self, pki: Path) -> None:
        self._context = ssl.create_default_context(cafile=str(pki / "ca.crt"))
        self._context.load_cert_chain(pki / "admin.crt", pki / "admin.key")
        self._services: dict[tuple[str, str], dict[str, Any]] = {}
        self._endpoints: dict[tuple[str, str], dict[str, Any]] = {}

    def look(self) -> None:
        """Poll the API server."""
        while True:
            try:
                self._services, self._endpoints = self._ask("services"), self._ask("endpoints")
            except (OSError, http.client.HTTPException, ValueError, KeyError) as error:
                sys.stderr.write(f"{error!r}\n")
            time.sleep(LOOK_SECONDS)

    def _ask(self, what: str) -> dict[tuple[str, str], dict[str, Any]]:
        connection = http.client.HTTPSConnection("127.0.0.1", 6443, context=self._context, timeout=10)
        try:
            connection.request("GET", f"/api/v1/{what}")
            items = json.load(connection.getresponse())["items"]
        finally:
            connection.close()
        return {(item["metadata"]["namespace"], item["metadata"]["name"]): item for item in items}

    def find(self, name: str) -> list[str] | None:
        """Return the addresses of a name; None if the name is unknown."""
        if not name.endswith(f".{DOMAIN}"):
            return None
        parts = name.removesuffix(f".{DOMAIN}").split(".")
        if len(parts) not in (2, 3):
            return None
        *pod, service, namespace = parts
        found = self._services.get((namespace, service))
        if found is None:
            return None
        if not pod and found["spec"].get("clusterIP", "None") != "None":
            return [found["spec"]["clusterIP"]]
        subsets = self._endpoints.get((namespace, service), {}).get("subsets") or ()
        # A Pod that is not ready is listed only if the Service publishes it: then all are "addresses".
        entries = [entry for subset in subsets for entry in subset.get("addresses") or ()]
        addresses = sorted({entry["ip"] for entry in entries if not pod or entry.get("hostname") == pod[0]})
        return addresses or (None if pod else [])


def answer(names: Names, question: bytes) -> bytes:
    """Return the datagram that answers a question. Raises IndexError, struct.error for a malformed one."""
    labels, at = [], 12
    while length := question[at]:
        labels.append(question[at + 1 : at + 1 + length].decode().lower())
        at += 1 + length
    at += 5  # the end of the name, its type and its class
    (wanted,) = struct.unpack(">H", question[at - 4 : at - 2])
    found = names.find(".".join(labels))
    shown = found if found and wanted == _A else []
    flags = 0x8580 | (_NO_SUCH_NAME if found is None else _NO_ERROR)
    head = question[:2] + struct.pack(">HHHHH", flags, 1, len(shown), 0, 0)
    rows = (struct.pack(">HHHIH", 0xC00C, _A, _IN, TTL_SECONDS, 4) + socket.inet_aton(address) for address in shown)
    return head + question[12:at] + b"".join(rows)


def main() -> None:
    """Serve until the process ends."""
    names = Names(Path(sys.argv[1]))
    threading.Thread(target=names.look, daemon=True).start()
    server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    server.bind((sys.argv[2], 53))
    while True:
        question, asker = server.recvfrom(4096)
        try:
            server.sendto(answer(names, question), asker)
        except (IndexError, ValueError, struct.error) as error:
            sys.stderr.write(f"no question: {error!r}\n")


if __name__ == "__main__":
    main()
