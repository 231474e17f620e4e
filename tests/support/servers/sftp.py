"""A real OpenSSH server for tests: SFTP with its own keys."""

from __future__ import annotations

import getpass
import json
import os
import shutil
import signal
import socket
import subprocess
from pathlib import Path

from tests.support.server_process import ServerProcess

CONFIG = """Port {port}
ListenAddress 127.0.0.1
HostKey {folder}/host
AuthorizedKeysFile {folder}/user.pub
PasswordAuthentication no
UsePAM no
StrictModes no
PidFile none
Subsystem sftp internal-sftp
ForceCommand internal-sftp
"""


class SftpServer(ServerProcess):
    """SFTP server. ``options``: the file for ``--packages-options``."""

    system = "sftp"

    def __init__(self) -> None:
        super().__init__()
        for name in ("host", "user", "stranger"):
            command = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(self.folder / name)]
            subprocess.run(command, check=True)
        (self.folder / "sshd_config").write_text(CONFIG.format(port=self.port, folder=self.folder))
        self.options = self.options_with("host")
        self.kept = self.folder / "kept"
        self.kept.mkdir()

    @property
    def address(self) -> dict[str, str]:
        """Return the address of that folder."""
        return {"url": self.url}

    @property
    def url(self) -> str:
        """Return the URL of a folder on the server."""
        return f"sftp://{getpass.getuser()}@127.0.0.1:{self.port}{self.kept}"

    def options_with(self, host: str) -> Path:
        """Return options of a client that trusts the server with this key."""
        known = self.folder / f"known-{host}"
        known.write_text(f"[127.0.0.1]:{self.port} {(self.folder / f'{host}.pub').read_text()}")
        file = self.folder / f"options-{host}.json"
        file.write_text(json.dumps({"client_keys": [str(self.folder / "user")], "known_hosts": str(known)}))
        file.chmod(0o600)
        return file

    def command(self) -> list[str]:
        """Return the command of OpenSSH's server."""
        if os.geteuid() == 0:
            Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)  # required by sshd
        program = shutil.which("sshd", path=f"{os.environ['PATH']}:/usr/sbin") or "sshd"
        return [program, "-D", "-e", "-f", str(self.folder / "sshd_config")]

    def greet(self) -> None:
        """Read the server's greeting."""
        with socket.create_connection(("127.0.0.1", self.port), 5) as talk:
            if talk.recv(4) != b"SSH-":
                raise ConnectionError("closed before a word")

    def hang(self) -> None:
        """Let the server accept connections without responding."""
        assert self.process is not None
        self.process.send_signal(signal.SIGSTOP)

    def go_on(self) -> None:
        """Resume after ``hang``."""
        assert self.process is not None
        self.process.send_signal(signal.SIGCONT)
