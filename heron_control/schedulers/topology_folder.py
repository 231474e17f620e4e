"""The folder of a topology on the host that submits it.

It contains ``launch.json``, the secret, the key, the credential for the state store, and other files of the topology.

The folder is staged next to its final path, so that two concurrent submissions of the same name cannot mix their files.
It is moved to its final path by one rename, after the state store has decided which submission wins.

The path of a folder depends only on the topology's cluster, role, environment and name. The record in the state store
contains the path, but is not trusted, since user code may be able to write there (``Homes``).
"""

from __future__ import annotations

import errno
import os
import secrets
import shutil
from dataclasses import dataclass, replace
from pathlib import Path

from heron_runtime.failures import NotAllowed
from heron_runtime.files import entries, replace_file
from heron_runtime.launch import Launch
from heron_runtime.model.ids import is_safe_name
from heron_runtime.model.records import ExecutionState, TopologyRecord
from heron_runtime.net.identity import Identity, draw_key, read_identity
from heron_runtime.state.credential import StoreCredential, read_credential
from heron_runtime.state.store import StateStore, check_identity

LAUNCH_FILE = "launch.json"
SECRET_FILE = "secret"
KEY_FILE = "key.pem"
STORE_CREDENTIAL_FILE = "store-credential"
LOG_FILES = "log-files"
METRICS = "metrics"
PACKAGE = "package"
PREVIOUS_LOGS = "previous"
TOPOLOGIES = "topologies"


def put_package(package: Path, folder: Path) -> None:
    """Move or unpack the user's code into a topology's folder.

    Also create the empty folders for the logs and metrics of its processes. ``package`` is a staged folder, which is
    moved, or a packed file.

    Raises:
        PackageError: The package is invalid.
        OSError: A file cannot be written.
    """
    # Imported here, since callers that only start schedulers or remove folders do not need it.
    from heron_control.packaging.shipping import unpack_package

    if package.is_dir():
        shutil.move(package, folder / PACKAGE)
    else:
        unpack_package(package, folder / PACKAGE)
    for name in (LOG_FILES, METRICS):
        (folder / name).mkdir(mode=0o700, exist_ok=True)


def place_of(root: Path, cluster: str, role: str, environ: str, name: str) -> Path:
    """Return the path of a topology's folder below a home."""
    return root / TOPOLOGIES / cluster / role / environ / name


@dataclass(frozen=True, slots=True)
class Homes:
    """The folders of one cluster's topologies, below ``root``.

    ``shared`` means that other homes of the same user may submit to the same store. Then the root in a record is
    accepted, but only for a folder of this user whose ``launch.json`` is that of this topology. Use it for commands,
    which have the same rights as the submitting user, and never for a service.
    """

    root: Path
    cluster: str
    shared: bool = False

    def of(self, execution: ExecutionState) -> Path:
        """Return the folder of this topology.

        Raises:
            NotAllowed: A name is invalid.
        """
        names = (self.cluster, execution.role, execution.environ, execution.topology)
        if not all(is_safe_name(name) for name in names):
            raise NotAllowed(f"the record of {execution.topology[:64]!r} holds an invalid name and may be forged")
        place = place_of(self.root, *names)
        if not self.shared or (place / LAUNCH_FILE).exists():
            return place
        other = Path(execution.home)
        return other if other.parts[-4:] == names and _is_its_own(other, self.cluster, execution) else place

    def has_topologies(self) -> bool:
        """Return True if a topology has a folder here, so that its state store must exist."""
        return any(Path(self.root, TOPOLOGIES, self.cluster).glob(f"*/*/*/{LAUNCH_FILE}"))

    def check_store(self, store: StateStore, role: str, environ: str, name: str) -> None:
        """Check that a topology without a record in the store has none because it was killed or never submitted.

        Raises:
            StoreReplaced: It has a folder, and was submitted to a store that has lost its contents.
            StoreError: The store does not answer.
        """
        names = (self.cluster, role, environ, name)
        launch = load_launch(place_of(self.root, *names)) if all(is_safe_name(name) for name in names) else None
        if launch is not None:
            check_identity(store, launch.store_id)

    def believed(self, record: TopologyRecord) -> TopologyRecord:
        """Return the record with its verified home, whatever it claims.

        Raises:
            NotAllowed: The home cannot be verified.
        """
        return replace(record, execution=replace(record.execution, home=str(self.of(record.execution))))


def _is_its_own(folder: Path, cluster: str, execution: ExecutionState) -> bool:
    try:
        ours = folder.is_absolute() and folder.stat().st_uid == os.geteuid()
    except OSError:
        return False
    launch = load_launch(folder) if ours else None
    return launch is not None and (
        (launch.cluster, launch.role, launch.environ, launch.topology, launch.topology_id)
        == (cluster, execution.role, execution.environ, execution.topology, execution.topology_id)
    )


def staging_beside(place: Path) -> Path:
    """Return a new name for a staged folder; it begins with a dot, unlike any topology's name."""
    return place.with_name(f".{place.name}.{secrets.token_hex(4)}")


def make_folder(folder: Path) -> None:
    """Create the folder and its parents for this user alone.

    Raises:
        OSError: A folder cannot be created.
    """
    above = [path for path in folder.parents if not path.exists()]
    for path in (*reversed(above), folder):
        path.mkdir(mode=0o700, exist_ok=path in above)  # mkdir(parents=True) would leave the parents open to all


def write_secrets(folder: Path) -> None:
    """Generate the topology's secret and key, and write them (0400).

    Raises:
        OSError: A file cannot be written.
    """
    for name, contents in ((SECRET_FILE, secrets.token_hex(32).encode()), (KEY_FILE, draw_key())):
        descriptor = os.open(folder / name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o400)
        with os.fdopen(descriptor, "wb") as file:
            file.write(contents)


def draw_store_credential(folder: Path, operators: StoreCredential, topology_id: str) -> None:
    """Generate the topology's credential for the state store, and write it (0400).

    Raises:
        OSError: The file cannot be written.
    """
    replace_file(folder / STORE_CREDENTIAL_FILE, operators.draw_for(topology_id).to_text().encode(), 0o400)


def store_credential_in(folder: Path, operators: StoreCredential) -> StoreCredential:
    """Return the topology's own credential, which was generated when it was submitted.

    The file is updated if it does not name the current ``operators``.

    Raises:
        StoreError: The credential is invalid.
        OSError: The file cannot be read or written.
    """
    file = folder / STORE_CREDENTIAL_FILE
    credential = read_credential(file)
    own = credential.known_by(operators)
    if own != credential:
        replace_file(file, own.to_text().encode(), 0o400)
    return own


def with_store(launch: Launch, folder: Path, url: str) -> Launch:
    """Return the launch with the store's current address, also saved. Running processes keep theirs."""
    known = replace(launch, store_url=url)
    if known != launch:
        known.save(folder / LAUNCH_FILE)
    return known


def with_store_id(launch: Launch, folder: Path, store_id: str) -> Launch:
    """Return the launch with the identity of the store that holds the submission, also saved."""
    known = replace(launch, store_id=store_id)
    if known != launch:
        known.save(folder / LAUNCH_FILE)
    return known


def identity_in(folder: Path, topology_id: str) -> Identity:
    """Return the identity that proves membership of this topology.

    Raises:
        OSError: The key cannot be read.
        ValueError: The key is invalid.
    """
    return read_identity(folder / KEY_FILE, topology_id)


def take_place(staging: Path, place: Path) -> None:
    """Move the staged folder to its final path.

    The logs of an earlier topology of the same name are kept, and the rest of its folder is removed.

    Raises:
        OSError: The staged folder is missing, or cannot be moved.
    """
    if not staging.is_dir():  # another process has moved it: leave that folder alone
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(staging))
    logs = place / LOG_FILES
    if logs.is_dir():
        (staging / LOG_FILES).mkdir(mode=0o700, exist_ok=True)
        shutil.rmtree(logs / PREVIOUS_LOGS, ignore_errors=True)
        os.rename(logs, staging / LOG_FILES / PREVIOUS_LOGS)
    if place.exists():
        shutil.rmtree(place)
    os.rename(staging, place)


def load_launch(folder: Path) -> Launch | None:
    """Return the ``launch.json`` in the folder, or None if it is missing or unreadable."""
    try:
        return Launch.load(folder / LAUNCH_FILE)
    except (OSError, ValueError, TypeError):
        return None


def remove_folder(place: Path, *, keep_logs: bool = False) -> None:
    """Remove the folder, or all of it except the logs. Idempotent.

    If the logs are not kept, folders above it that are empty afterwards are removed as well.
    """
    if keep_logs:
        for entry in entries(place):
            if entry.name != LOG_FILES:
                shutil.rmtree(entry, ignore_errors=True) if entry.is_dir() else entry.unlink(missing_ok=True)
        return
    shutil.rmtree(place, ignore_errors=True)
    for parent in list(place.parents)[:3]:  # remove ENV, ROLE and CLUSTER if they are empty
        try:
            parent.rmdir()
        except OSError:
            return
