"""Virtual environment for each peer, created once in a cache folder; installation errors are reported."""

from __future__ import annotations

import subprocess
import sys
import venv
from dataclasses import dataclass
from pathlib import Path

import platformdirs

INSTALL_SECONDS = 900


class NotInstalled(Exception):
    """Reason for which a peer cannot be measured here."""


@dataclass(frozen=True)
class Peer:
    """Engine: packages for pip, and a module that must then be importable. Without packages, this Python is used."""

    name: str
    requirements: tuple[str, ...] = ()
    module: str = ""


PEERS = {
    peer.name: peer
    for peer in (
        Peer("by hand"),
        Peer("duckdb", ("duckdb==2.0.1",), "duckdb"),
        Peer("polars", ("polars==2.1.0",), "polars"),
        Peer("bytewax", ("bytewax==0.21.1",), "bytewax"),
        Peer("streamparse", ("streamparse==5.0.1", "pystorm==3.1.4", "setuptools<81"), "streamparse"),
        Peer("pyflink", ("apache-flink==2.3.0", "setuptools<81"), "pyflink"),
    )
}


def cache_folder() -> Path:
    """Return the folder of the environments."""
    return Path(platformdirs.user_cache_dir("heronry")) / "bench-peers"


def python_of(peer: Peer) -> Path:
    """Return the interpreter with the peer, installing it if necessary. Raises NotInstalled with the reason."""
    if not peer.requirements:
        return Path(sys.executable)
    home = cache_folder() / peer.name
    python = home / "bin" / "python"
    ready = home / ".ready"
    wanted = "\n".join(peer.requirements)
    if ready.exists() and ready.read_text() == wanted:
        return python
    print(f"installing {' '.join(peer.requirements)} into {home}", file=sys.stderr, flush=True)
    try:
        venv.create(home, with_pip=True, clear=True)
        _run([str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *peer.requirements])
        _run([str(python), "-c", f"import {peer.module}"])
    except (OSError, subprocess.SubprocessError) as error:
        raise NotInstalled(f"{peer.name} cannot be installed: {_last_words(error)}") from None
    ready.write_text(wanted)
    return python


def _run(command: list[str]) -> None:
    subprocess.run(command, check=True, capture_output=True, text=True, timeout=INSTALL_SECONDS)


def _last_words(error: Exception) -> str:
    said = getattr(error, "stderr", None) or str(error)
    return str(said).strip().splitlines()[-1]
