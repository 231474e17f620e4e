"""How a container shows the api server that it is of a topology, without saying its secret.

It asks with its topology's id and is answered by a nonce; it asks again with the proof of the secret over nonce,
topology and what it asks for (``heron_runtime.net.handshake.prove_download``). The nonce says itself when it was given
and to whom, under a key that only this process has, so nothing is kept for a caller who never comes back, and a proof
that was heard is of no use later or from elsewhere. That the server is the right one shows in what it sends: its digest
is known.
"""

from __future__ import annotations

import hmac

LIFE_SECONDS = 60
MAX_TIME_CHARACTERS = 16  # of the time in a nonce, in hexadecimal
SCHEME = "heronry"


class Challenges:
    """``key`` is random, and of this process alone."""

    def __init__(self, key: bytes) -> None:
        self._key = key

    def nonce(self, now_seconds: int, topology_id: str, source: str) -> str:
        """A nonce for this caller, at this moment."""
        return f"{now_seconds:x}.{self._seal(now_seconds, topology_id, source)}"

    def is_ours(self, nonce: str, now_seconds: int, topology_id: str, source: str) -> bool:
        """True for a nonce that this caller was given in the last LIFE_SECONDS."""
        given, _, _ = nonce.partition(".")
        if len(given) > MAX_TIME_CHARACTERS:  # a number of more digits cannot be written as text
            return False
        try:
            at = int(given, 16)
        except ValueError:
            return False
        fresh = 0 <= now_seconds - at <= LIFE_SECONDS
        return hmac.compare_digest(nonce.encode(), self.nonce(at, topology_id, source).encode()) and fresh

    def _seal(self, at: int, topology_id: str, source: str) -> str:
        text = "\0".join((str(at), source, topology_id)).encode("utf-8", "surrogatepass")
        return hmac.digest(self._key, text, "sha256").hex()


def parts_of(header: str) -> tuple[str, str]:
    """Nonce and proof in an Authorization header; both empty if it holds none."""
    words = header.split()
    return (words[1], words[2]) if len(words) == 3 and words[0].lower() == SCHEME else ("", "")
