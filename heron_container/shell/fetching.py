"""The user's package, from the api server by its digest, onto the disk that the topology's containers share.

No proxy, no redirect. The first request is answered by a nonce, the second proves under it that this is a container of
the topology; the secret itself goes nowhere. A nonce holds at the api server that gave it and for the address that was
seen there: so the proof goes by the same connection, and where balancers bring it to another server, or from another
address, all the same, the new nonce of that one is proved under. What comes is counted, its SHA-256 must be the digest
that was asked for, and ``heron_control.packaging.shipping`` unpacks it all or nothing. Two containers may do this at
once; one of them wins the rename, and the other finds what it wanted.
"""

from __future__ import annotations

import hashlib
import http.client
import json
import tempfile
import urllib.parse
from pathlib import Path

from heron_control.packaging.shipping import unpack_package
from heron_runtime.failures import one_line
from heron_runtime.launch import Launch
from heron_runtime.net.handshake import prove_download

TIMEOUT_SECONDS = 30.0
CHUNK = 1 << 20
MOST_BYTES = 2 << 30
MOST_PROOFS = 4
_FINAL = {401, 403, 404, 410}


class FetchError(Exception):
    """The package did not come; it may at another time."""


class Refused(Exception):
    """The package will not come; the text says why."""


def fetch_package(launch: Launch) -> None:
    """Make ``launch.package_dir``, unless it is there. Raises FetchError, Refused, PackageError, OSError."""
    if launch.package_dir.is_dir() or not launch.package_digest:
        return
    Path(launch.home).mkdir(mode=0o700, parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".package-", dir=launch.home) as folder:
        archive = Path(folder, f"{launch.package_digest}.tar.gz")
        _download(launch, archive)
        try:
            unpack_package(archive, launch.package_dir)
        except OSError:
            if not launch.package_dir.is_dir():  # another container was faster
                raise


def _download(launch: Launch, target: Path) -> None:
    url = urllib.parse.urlsplit(launch.api_url)
    make = http.client.HTTPSConnection if url.scheme == "https" else http.client.HTTPConnection
    connection = make(url.hostname or "", url.port, timeout=TIMEOUT_SECONDS)
    path = f"{url.path.rstrip('/')}/api/v1/packages/{launch.package_digest}"
    headers = {"heronry-topology": launch.topology_id}
    try:
        connection.request("GET", path, headers=headers)
        answer = connection.getresponse()
        for _ in range(MOST_PROOFS):
            nonce = answer.headers.get("heronry-nonce", "")
            if answer.status != http.client.UNAUTHORIZED or not nonce:
                break
            answer.read(CHUNK)
            if not answer.isclosed():
                connection.close()  # there is more than anybody needs; it opens another by itself
            proof = prove_download(launch.secret(), launch.topology_id, launch.package_digest, nonce)
            connection.request("GET", path, headers={**headers, "Authorization": f"Heronry {nonce} {proof}"})
            answer = connection.getresponse()
        if answer.status != http.client.OK:
            reason = f"the api server {launch.api_url} answered {answer.status} {_said(answer)}"
            raise (Refused if answer.status in _FINAL else FetchError)(reason)
        digest = _copy(answer, target)
    except (OSError, http.client.HTTPException) as error:
        raise FetchError(f"the api server {launch.api_url} does not answer: {error or type(error).__name__}") from error
    finally:
        connection.close()
    if digest != launch.package_digest:
        raise FetchError(f"the api server {launch.api_url} sent a package whose digest is {digest}")


def _said(answer: http.client.HTTPResponse) -> str:
    """What the answer says is wrong; the status in words, if it says nothing."""
    try:
        message = json.loads(answer.read(CHUNK))["message"]
    except (ValueError, KeyError, TypeError):
        message = ""
    return one_line(message) if isinstance(message, str) and message else answer.reason


def _copy(answer: http.client.HTTPResponse, target: Path) -> str:
    """Write the body; returns its SHA-256."""
    digest, written = hashlib.sha256(), 0
    with target.open("xb") as file:
        while chunk := answer.read(CHUNK):
            written += len(chunk)
            if written > MOST_BYTES:
                raise Refused(f"the package is larger than {MOST_BYTES} bytes")
            digest.update(chunk)
            file.write(chunk)
    return digest.hexdigest()
