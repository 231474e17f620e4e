"""Identity of a topology: one key that both ends of every gRPC connection prove to hold and that is never sent.

Submit creates a key pair for one topology and a self-signed certificate for it. Every server of the topology presents
this certificate and accepts only callers that present it as well, and a caller accepts only such servers. TLS 1.3 thus
proves on each connection, with fresh random numbers of both sides, that both hold the private key. A foreign process
that listens at a former address of a process can neither learn nor answer anything, and recorded connections are
useless. The processes of a topology do not trust any other certificate. They all have the same key: it authenticates
the topology, and a process states its own identity (container, incarnation, epoch) afterwards.

The file (`key.pem`, mode 0400) holds the private key and the certificate. The certificate is valid from one day before
its creation (clocks of hosts differ) and does not expire. Expiry would not stop an attacker who has the key, but would
disconnect the processes of a long-lived topology. To revoke a leaked key, submit the topology again.
"""

from __future__ import annotations

import datetime as dt
import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from heron_runtime.launch import Launch

if TYPE_CHECKING:
    import grpc

NAME = "topology.heronry"  # the subject of every certificate, independent of the host
NO_END = dt.datetime(9999, 12, 31, 23, 59, 59, tzinfo=dt.UTC)  # RFC 5280, 4.1.2.5
EARLIER_DAYS = 1
TOPOLOGY_KEY = "heronry-topology"
_CERTIFICATE = b"-----BEGIN CERTIFICATE-----"


@dataclass(frozen=True, slots=True)
class Identity:
    """Id, key and certificate (PEM) of a topology. The repr does not show key and certificate."""

    topology_id: str
    key: bytes = field(repr=False)
    certificate: bytes = field(repr=False)

    def metadata(self, *extra: tuple[str, str]) -> tuple[tuple[str, str], ...]:
        """Return the metadata of a call, which names the addressed topology. It does not contain secrets."""
        return ((TOPOLOGY_KEY, self.topology_id), *extra)

    def of_servers(self) -> grpc.ServerCredentials:
        """Return the credentials of a server, which requires that callers present the same certificate."""
        import grpc  # here, since processes that only read keys do not need it

        pair = ((self.key, self.certificate),)
        return grpc.ssl_server_credentials(pair, root_certificates=self.certificate, require_client_auth=True)

    def of_callers(self) -> grpc.ChannelCredentials:
        """Return the credentials of a caller, which requires that servers present the same certificate."""
        import grpc

        return grpc.ssl_channel_credentials(self.certificate, self.key, self.certificate)


def read_identity(file: Path, topology_id: str) -> Identity:
    """Read the identity in ``file``. Raises OSError, ValueError."""
    try:
        return parse_identity(file.read_bytes(), topology_id)
    except ValueError as error:
        raise ValueError(f"{file} {error}") from None


def warm_up() -> None:
    """Import the modules of ``draw_key`` in a thread, which saves a tenth of a second on a busy machine."""
    threading.Thread(target=draw_key, name="warm up").start()  # not a daemon: exit must not interrupt an import


def parse_identity(contents: bytes, topology_id: str) -> Identity:
    """Parse the contents of a key file. Raises ValueError."""
    key, mark, certificate = contents.partition(_CERTIFICATE)
    if not key or not mark:
        raise ValueError("holds no key and certificate of a topology")
    return Identity(topology_id, key, mark + certificate)


def identity_of(launch: Launch) -> Identity:
    """Return the identity of the topology of this process. Raises OSError, ValueError."""
    return read_identity(launch.key_file, launch.topology_id)


def draw_key(now: dt.datetime | None = None) -> bytes:
    """Create a key and its certificate. Return the contents of ``key.pem``."""
    # Imported here, since only submit creates keys.
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    now = now or dt.datetime.now(dt.UTC)
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, NAME)])
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(days=EARLIER_DAYS))
        .not_valid_after(NO_END)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(NAME)]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
    )
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return private + certificate.public_bytes(serialization.Encoding.PEM)
