"""File with the credential of a state store: rights to write, to read, or to use the folders of one topology.

A ZooKeeper ensemble may also serve other applications, so digest ACLs protect Heronry's nodes. The operator's file has
mode 0400 and one line for each right::

    cluster: heronry:a-long-password
    reader: tracker:another-long-password

A client with the ``cluster`` line has all rights. A ``reader`` line in the same file lets that reader read all nodes
that this client creates. A client with only a ``reader`` line, such as a tracker, can only read. To change the
password, add a line ``former: heronry:the-password-before`` to the new ``cluster`` line. It gives access to nodes that
were created before, and these get the new rights.

A topology has a separate file, generated at its submission, and never has access to the operator's::

    topology: topology.words-1a2b:drawn-at-random
    cluster-id: heronry:digest
    reader-id: tracker:digest

With this file, its processes can write to the folders of their own topology and read its definition and plan. The two
ids are ACL entries, which contain a digest instead of the password. With them the control plane and the readers can
read the nodes that the topology creates. A digest does not grant access, but weak passwords can be guessed from it, so
use random ones.

For ``zookeeper+tls://``, a line ``ca-file: zookeeper-ca.pem`` (relative to this file, or absolute) names certificates
of the trusted authorities, and ``client-file: client.pem`` names a certificate with its key for servers that require
one. A topology's file contains their contents as ``ca`` and ``client``, so that other files are not needed.

A process receives the *path* of the file, never its contents (``Launch.store_credential``). Secrets are therefore not
in ``launch.json``, in URLs, arguments or environment variables.
"""

from __future__ import annotations

import base64
import hashlib
import os
import secrets
import stat
from dataclasses import dataclass, replace
from pathlib import Path

from heron_runtime.state.store import StoreError, StoreForbidden

MAX_BYTES = 128 * 1024
MAX_PEM_BYTES = 32 * 1024  # enough for a few authorities, not for all of an operating system
TOPOLOGY_USER = "topology."  # prefix of the user of each topology
_RIGHTS = {"cluster": "cluster", "reader": "reader", "former": "former"}
_OF_TOPOLOGY = {"topology": "topology", "cluster-id": "cluster_id", "reader-id": "reader_id"}
_USERS = (*_RIGHTS.values(), *_OF_TOPOLOGY.values())
_PEM = {"ca": "authorities", "client": "certificate"}
_FILE = "-file"
_EXAMPLE = "as `cluster: heronry:PASSWORD`, and perhaps `reader: tracker:PASSWORD`"


@dataclass(frozen=True, slots=True)
class StoreCredential:
    """Credential: ``user:password`` of each right, ``user:digest`` of each id, and PEM for TLS. Missing ones are "".

    The repr does not show passwords.
    """

    cluster: str = ""
    reader: str = ""
    former: str = ""
    topology: str = ""
    cluster_id: str = ""
    reader_id: str = ""
    authorities: str = ""
    certificate: str = ""

    @property
    def read_only(self) -> bool:
        """Return True if the credential only permits reading."""
        return not self.cluster and not self.topology

    @property
    def own(self) -> str:
        """Return the credential that this client presents."""
        return self.cluster or self.topology or self.reader

    @property
    def shown(self) -> list[str]:
        """All credentials that this client presents to the store."""
        return [self.own, self.former] if self.former else [self.own]

    @property
    def control(self) -> str:
        """ACL entry of the control plane."""
        return self.cluster_id or digest_of(self.cluster)

    @property
    def readers(self) -> str:
        """ACL entry of readers; empty without a reader."""
        return self.reader_id or digest_of(self.reader)

    @property
    def identity(self) -> str:
        """ACL entry of a topology."""
        return digest_of(self.topology)

    def __repr__(self) -> str:
        """Return a text with the users only."""
        users = ((right, getattr(self, right).partition(":")[0]) for right in _USERS)
        return f"StoreCredential({', '.join(f'{right}={user!r}' for right, user in users if user)})"

    def draw_for(self, topology_id: str) -> StoreCredential:
        """Create a credential for one topology of the cluster to which this credential belongs."""
        drawn = f"{TOPOLOGY_USER}{topology_id}:{secrets.token_hex(24)}"
        return StoreCredential(topology=drawn).known_by(self)

    def known_by(self, operators: StoreCredential) -> StoreCredential:
        """Return a copy with the current ids, authorities and client certificate of `operators`."""
        return replace(
            self,
            cluster_id=operators.control,
            reader_id=operators.readers,
            authorities=operators.authorities,
            certificate=operators.certificate,
        )

    def to_text(self) -> str:
        """Return the contents of the file."""
        lines = [(name, getattr(self, field)) for name, field in (_RIGHTS | _OF_TOPOLOGY).items()]
        lines += [(name, base64.b64encode(getattr(self, field).encode()).decode()) for name, field in _PEM.items()]
        return "".join(f"{name}: {value}\n" for name, value in lines if value)


def digest_of(credential: str) -> str:
    """Return `user:password` as in an ACL entry of ZooKeeper's digest scheme; empty for an empty credential."""
    digest = base64.b64encode(hashlib.sha1(credential.encode(), usedforsecurity=False).digest()).decode()
    return f"{credential.partition(':')[0]}:{digest}" if credential else ""


def read_credential(file: str | Path) -> StoreCredential:
    """Read the credential in ``file``. Raises StoreError with a remedy; it does not show the contents."""
    path = Path(file)
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        with os.fdopen(descriptor, "rb") as opened:
            mode = os.fstat(descriptor).st_mode
            if not stat.S_ISREG(mode):
                raise StoreError(f"{path} is not a file; name the file with the credential of the state store")
            if stat.S_IMODE(mode) & 0o077:
                raise StoreError(f"{path}: other users may read this credential; chmod 0400 {path}")
            data = opened.read(MAX_BYTES + 1)
    except OSError as error:
        kind = StoreForbidden if isinstance(error, PermissionError) else StoreError
        raise kind(
            f"{path}: the credential of the state store cannot be read: {error.strerror}. "
            "It is a file of mode 0400 that belongs to the user of this process"
        ) from error
    return _parse(path, data)


def _parse(path: Path, data: bytes) -> StoreCredential:
    fields: dict[str, str] = {}
    try:
        lines = data.decode().splitlines()
    except UnicodeDecodeError:
        raise StoreError(f"{path} is not UTF-8 text; write {_EXAMPLE}") from None
    if len(data) > MAX_BYTES:
        raise StoreError(f"{path} is larger than {MAX_BYTES} bytes; write {_EXAMPLE}")
    for number, line in enumerate(lines, 1):
        text = line.strip()
        if not text or text.startswith("#"):
            continue
        right, _, value = (part.strip() for part in text.partition(":"))
        user, _, password = value.partition(":")
        field = (_RIGHTS | _OF_TOPOLOGY).get(right, "")
        pem = _PEM.get(right.removesuffix(_FILE), "")
        if pem and value and pem not in fields:
            fields[pem] = _pem_of(path, right, value)
        elif field and field not in fields and user and password:
            fields[field] = value
        else:
            raise StoreError(f"{path}, line {number} is not understood; write {_EXAMPLE}, each once")
    credential = StoreCredential(**fields)
    operators = credential.cluster or credential.reader
    if not operators and not (credential.topology and credential.cluster_id):
        raise StoreError(f"{path} contains no credential; write {_EXAMPLE}")
    if operators and (credential.topology or credential.cluster_id or credential.reader_id):
        raise StoreError(f"{path} mixes the credentials of a cluster and of a topology; write {_EXAMPLE}")
    if credential.former and not credential.cluster:
        raise StoreError(f"{path}: a former credential is next to the cluster's new one; write {_EXAMPLE}")
    return credential


def _pem_of(path: Path, right: str, value: str) -> str:
    """Return the PEM text of a line for TLS, or of the file that it names beside the credential. Raises StoreError."""
    try:
        if not right.endswith(_FILE):
            return base64.b64decode(value, validate=True).decode()
        with (path.parent / value).open("rb") as file:
            contents = file.read(MAX_PEM_BYTES + 1)
        if len(contents) > MAX_PEM_BYTES:
            raise StoreError(f"{path}: {right} names more than {MAX_PEM_BYTES} bytes; leave in it what is needed here")
        return contents.decode()
    except OSError as error:
        raise StoreError(
            f"{path}: {right} names {value}, which cannot be read: {error.strerror}; correct it"
        ) from error
    except ValueError:
        raise StoreError(f"{path}: {right} is not in PEM format; name a file with certificates as `{right}`") from None
