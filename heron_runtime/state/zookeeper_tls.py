"""TLS to ZooKeeper's servers (``zookeeper+tls://``): whom a client believes, and what a handshake that fails means.

A digest credential is a password, and it is said to whoever answers; so a client first has the server prove who it is.
It believes the authorities of its credential file (``ca-file``), or those of the operating system where that names
none, and the name in the server's certificate must be that in the store's URL. There is no way round either, and a
credential that names authorities is never shown on a connection without TLS.
"""

from __future__ import annotations

import contextlib
import os
import socket
import ssl

from heron_runtime.state.store import StoreError

HANDSHAKE_SECS = 5.0
VERDICT_SECS = 1.0
TLS_SCHEME = "zookeeper+tls"
_EXPIRED, _OTHER_NAME = 10, (62, 64)  # OpenSSL's X509_V_ERR_…: a name, an address


def client_context(authorities: str, certificate: str) -> ssl.SSLContext:
    """For connections to servers that ``authorities`` (PEM; "" for the system's) vouch for.

    ``certificate`` (PEM, with its key) is shown to servers that demand one; "" where none does. Raises StoreError.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # it verifies certificate and name
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        if authorities:
            context.load_verify_locations(cadata=authorities)
        else:
            context.load_default_certs()
        if certificate:
            _load(context, certificate.encode())
    except (ssl.SSLError, ValueError) as error:
        raise StoreError(
            f"the certificates that the credential file of the state store names are not understood ({error}). "
            "`ca-file` holds certificates in PEM, `client-file` a certificate and its key, without a password"
        ) from error
    return context


def _load(context: ssl.SSLContext, certificate: bytes) -> None:
    """OpenSSL takes key and certificate from a file only: one in memory, which is nobody else's."""
    with os.fdopen(os.memfd_create("client", os.MFD_CLOEXEC), "wb") as file:
        file.write(certificate)
        file.flush()
        context.load_cert_chain(f"/proc/self/fd/{file.fileno()}")


def speaks_tls(connection: socket.socket) -> bool:
    """True if a server answers a handshake. Nothing is said to it, so it need not prove who it is."""
    connection.settimeout(HANDSHAKE_SECS)
    anybody = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    anybody.check_hostname, anybody.verify_mode = False, ssl.CERT_NONE
    try:
        with anybody.wrap_socket(connection):
            return True
    except OSError:
        return False


def refusal_of(connection: socket.socket, host: str, context: ssl.SSLContext) -> str:
    """Why a handshake with a server fails, with the cure; empty if it does not."""
    connection.settimeout(HANDSHAKE_SECS)
    try:
        with context.wrap_socket(connection, server_hostname=host) as made:
            made.settimeout(VERDICT_SECS)
            with contextlib.suppress(TimeoutError):
                made.recv(1)  # what it holds against us a server says after the handshake; else it waits for our word
            return ""
    except ssl.SSLCertVerificationError as error:
        return _not_believed(error)
    except TimeoutError:
        return f"takes connections, but does not answer in TLS within {HANDSHAKE_SECS:g} s: it hangs, or is very busy"
    except OSError as error:
        if isinstance(error, ssl.SSLError) and "ALERT" in (error.reason or ""):
            return f"refuses TLS with us ({error.reason}): where it demands a certificate, name one as `client-file`"
        return "speaks no TLS: write its secureClientPort in the store's URL (or, to go without TLS, zookeeper://)"


def _not_believed(error: ssl.SSLCertVerificationError) -> str:
    if error.verify_code == _EXPIRED:
        return "shows a certificate that has expired: give the server a new one, and restart it"
    if error.verify_code in _OTHER_NAME:
        return f"shows a certificate for another name ({error.verify_message}): write its own in the store's URL"
    return (
        f"shows a certificate signed by an unknown authority ({error.verify_message}): it is not the cluster's server, "
        "or `ca-file` in the credential file does not hold the authority that signed its certificate"
    )
