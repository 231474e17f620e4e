"""First program in a container of a container scheduler: prepares the volume and becomes heron_container.

``python -m heron_container.bootstrap --launch FILE --container N``. The scheduler places ``launch.json``, the secret
and, if there is one, the store's credential into a folder of this container before each start. The volume around that
folder is shared by the topology's containers and outlives them. It holds the logs, the saved plans and the user's code.
Code that is already in the volume is not fetched again, so a container can start without the API server. Missing code
is requested from the API server until it answers.

The program starts as root with the three capabilities needed to change users and becomes ``--user`` before it opens
anything. It keeps these capabilities where instances run, because heron_container runs user code as another user
(``heron_runtime.code_user``). That user gets write access to the volume and read access to its code, and to nothing
else.

The package is downloaded without proxy and redirects. The API server answers the first request with a nonce. The second
request proves, with this nonce, that it comes from a container of the topology; the secret itself is never sent. A
nonce is valid at the API server that issued it and for the client address that this server saw, so the proof uses the
same connection. If a load balancer routes it elsewhere, the new server's nonce is used for another proof. The received
bytes are counted, their SHA-256 must equal the requested digest, and ``heron_control.packaging.package`` unpacks them
atomically. Two containers may download at the same time: one of them wins the rename, the other uses the result.
"""

from __future__ import annotations

import argparse
import hashlib
import http.client
import json
import logging
import os
import sys
import tempfile
import time
import urllib.parse
from pathlib import Path

from heron_control.packaging.shipping import unpack_package
from heron_control.schedulers.container_spec import SHARED_PATH, VOLUME_PATH
from heron_control.schedulers.identity import process_title
from heron_runtime.checkpoint_files import CHECKPOINTS
from heron_runtime.code_user import PASSED_THROUGH, WRITTEN_TO, CodeUser, code_user
from heron_runtime.failures import Failure, one_line
from heron_runtime.files import replace_file
from heron_runtime.launch import Launch
from heron_runtime.linux import CHANGE_USER, change_user
from heron_runtime.model.backoff import BackoffPolicy
from heron_runtime.model.ids import container_name, holds_master
from heron_runtime.net.handshake import prove_download
from heron_runtime.process import set_up_process
from heron_runtime.spawn import python_command
from heronry.api.errors import PackageError

TIMEOUT_SECONDS = 30.0
CHUNK = 1 << 20
MOST_BYTES = 2 << 30
MOST_PROOFS = 4
_FINAL = {401, 403, 404, 410}
EXIT_REFUSED = 65
PATIENCE = BackoffPolicy(500, 10_000, 60_000)
log = logging.getLogger("heron_container")


class FetchError(Exception):
    """Raised when a download of the package failed and may succeed later."""


class PackageRefused(Exception):
    """Raised when the API server refuses the package for good."""


def fetch_package(launch: Launch) -> None:
    """Download and unpack the package into ``launch.package_dir`` unless it exists.

    Raises:
        FetchError: The download failed and may succeed later.
        PackageRefused: The API server refuses the package.
        PackageError: The archive is invalid.
        OSError: The package cannot be written.
    """
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
                connection.close()  # the rest of the body is not needed; the next request reconnects
            proof = prove_download(launch.secret(), launch.topology_id, launch.package_digest, nonce)
            connection.request("GET", path, headers={**headers, "Authorization": f"Heronry {nonce} {proof}"})
            answer = connection.getresponse()
        if answer.status != http.client.OK:
            reason = f"API server {launch.api_url}: {answer.status} {_response_error(answer)}"
            raise (PackageRefused if answer.status in _FINAL else FetchError)(reason)
        digest = _copy(answer, target)
    except (OSError, http.client.HTTPException) as error:
        raise FetchError(f"API server {launch.api_url} does not answer: {error or type(error).__name__}") from error
    finally:
        connection.close()
    if digest != launch.package_digest:
        raise FetchError(f"API server {launch.api_url} sent a package with another digest: {digest}")


def _response_error(answer: http.client.HTTPResponse) -> str:
    """Return the error message of a response, or the reason phrase of its status."""
    try:
        message = json.loads(answer.read(CHUNK))["message"]
    except (ValueError, KeyError, TypeError):
        message = ""
    return one_line(message) if isinstance(message, str) and message else answer.reason


def _copy(answer: http.client.HTTPResponse, target: Path) -> str:
    """Write the body to ``target`` and return its SHA-256."""
    digest, written = hashlib.sha256(), 0
    with target.open("xb") as file:
        while chunk := answer.read(CHUNK):
            written += len(chunk)
            if written > MOST_BYTES:
                raise PackageRefused(f"package exceeds {MOST_BYTES} bytes")
            digest.update(chunk)
            file.write(chunk)
    return digest.hexdigest()


def main() -> None:
    """Prepare the volume and become heron_container."""
    parser = argparse.ArgumentParser(prog="python -m heron_container.bootstrap")
    parser.add_argument("--launch", required=True, type=Path)
    parser.add_argument("--container", required=True, type=int)
    parser.add_argument("--user", default="", help="user to become, if started as root")
    options = parser.parse_args()
    if options.user and os.geteuid() == 0:
        user = CodeUser.named(options.user)
        change_user(user.uid, user.gid, user.groups, 0 if holds_master(options.container) else CHANGE_USER)
    launch = Launch.load(options.launch)
    set_up_process(process_title(launch.topology, container_name(options.container)))
    try:
        prepare(launch, options.launch.parent / "secret")
    except (PackageRefused, PackageError, Failure, OSError) as error:
        log.error("cannot start: %s", error)
        sys.exit(EXIT_REFUSED)
    number = str(options.container)
    command = python_command("heron_container", "--launch", str(options.launch), "--container", number)
    os.execv(command[0], [*command, "--own-log", "--echo-log"])


def prepare(launch: Launch, secret: Path) -> None:
    """Create the folders, store the secret and fetch the package.

    Raises:
        PackageRefused: The API server refuses the package.
        PackageError: The archive is invalid.
        UsageError: The user of user code is invalid.
        OSError: A folder or file cannot be written.
    """
    for folder in (Path(launch.home), launch.log_dir, launch.metrics_dir, Path(launch.runtime_dir)):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    replace_file(launch.secret_file, secret.read_bytes(), 0o400)  # shared by all containers of the topology
    user = code_user(launch.settings)
    _fetch_patiently(launch)
    if user is not None:
        user.may_read_all(launch.package_dir)
        user.share(Path(launch.home), PASSED_THROUGH)
        user.open_checkpoints(Path(launch.home, CHECKPOINTS))
        user.share(Path(VOLUME_PATH), WRITTEN_TO)  # the working folder
        # The folder that nodes share, unless user code has created something of that name here.
        user.share_own_folder(Path(SHARED_PATH), WRITTEN_TO)


def _fetch_patiently(launch: Launch) -> None:
    attempts = 0
    while True:
        try:
            return fetch_package(launch)
        except FetchError as error:
            attempts += 1
            delay = PATIENCE.delay_ms(attempts + 1) / 1000
            log.warning("package not available: %s; retrying in %.1f s", error, delay)
            time.sleep(delay)


if __name__ == "__main__":
    main()
