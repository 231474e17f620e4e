"""A real OpenSSH server for tests: SFTP on a free port of 127.0.0.1, in a temporary folder, with keys of its own.

It can be stopped and started again, and ends with its test process, however that ends.
"""

from __future__ import annotations

import contextlib
import getpass
import json
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

START_SECS = 60.0
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


class SftpServer:
    """One server. ``options``: the file for ``--packages-options``."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="heronry-sftp-"))
        with socket.create_server(("127.0.0.1", 0)) as found:
            self.port = found.getsockname()[1]
        for name in ("host", "user", "stranger"):
            command = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(self.folder / name)]
            subprocess.run(command, check=True)
        (self.folder / "sshd_config").write_text(CONFIG.format(port=self.port, folder=self.folder))
        self.options = self.options_with("host")
        self.kept = self.folder / "kept"
        self.kept.mkdir()
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """Of a folder there."""
        return f"sftp://{getpass.getuser()}@127.0.0.1:{self.port}{self.kept}"

    def options_with(self, host: str) -> Path:
        """Options of a client that believes the server with this key."""
        known = self.folder / f"known-{host}"
        known.write_text(f"[127.0.0.1]:{self.port} {(self.folder / f'{host}.pub').read_text()}")
        file = self.folder / f"options-{host}.json"
        file.write_text(json.dumps({"client_keys": [str(self.folder / "user")], "known_hosts": str(known)}))
        file.chmod(0o600)
        return file

    def start(self) -> None:
        """Start, and wait until it answers."""
        if os.geteuid() == 0:
            Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)  # sshd wants it
        program = shutil.which("sshd", path=f"{os.environ['PATH']}:/usr/sbin") or "sshd"
        die_with_us = ["setpriv", "--pdeathsig", "KILL"] if shutil.which("setpriv") else []
        with (self.folder / "server.log").open("ab") as log:
            self.process = subprocess.Popen(
                [*die_with_us, program, "-D", "-e", "-f", str(self.folder / "sshd_config")],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=self.folder,
            )  # fmt: skip
        deadline = time.monotonic() + START_SECS
        while True:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 5) as talk:
                if talk.recv(4) == b"SSH-":
                    return
            assert time.monotonic() < deadline, (self.folder / "server.log").read_text(errors="replace")[-500:]
            time.sleep(0.05)

    def hang(self) -> None:
        """It takes connections and says nothing."""
        assert self.process is not None
        self.process.send_signal(signal.SIGSTOP)

    def go_on(self) -> None:
        """After ``hang``."""
        assert self.process is not None
        self.process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        """As by a power cut."""
        process, self.process = self.process, None
        if process is not None:
            process.kill()
            process.wait(START_SECS)

    def close(self) -> None:
        """End it, and remove all it had."""
        self.kill()
        shutil.rmtree(self.folder)


@contextlib.contextmanager
def sftp_server() -> Iterator[SftpServer]:
    """A server that serves, and leaves nothing behind."""
    made = SftpServer()
    try:
        made.start()
        yield made
    finally:
        made.close()
