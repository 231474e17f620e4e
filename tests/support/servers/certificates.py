"""Certificate authorities and certificates for TLS tests."""

from __future__ import annotations

import datetime as dt
import ipaddress

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

DAY = dt.timedelta(days=1)


class Authority:
    """Certificate authority; ``pem`` is its certificate."""

    def __init__(self, name: str) -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _name(name)
        builder = _builder(self._name, self._name, self._key, 10)
        builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        self.pem = builder.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM).decode()

    def issue(self, address: str, days: int = 5) -> str:
        """Return a key and a certificate for an IP address, valid for ``days``; negative days have expired."""
        key = ec.generate_private_key(ec.SECP256R1())
        names = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address(address))])
        builder = _builder(_name(address), self._name, key, days).add_extension(names, critical=False)
        certificate = builder.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
        form = serialization.PrivateFormat.PKCS8
        private = key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption())
        return (private + certificate).decode()


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, text)])


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, days: int
) -> x509.CertificateBuilder:
    now = dt.datetime.now(dt.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - 20 * DAY)
        .not_valid_after(now + days * DAY)
    )
