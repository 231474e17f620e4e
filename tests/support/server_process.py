"""Run a server program of the system for tests, in a temporary folder and on a free port of 127.0.0.1.

The server can be killed and restarted on its data. It ends with its test process, however that ends.
"""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from tests.support.ports import free_port

START_SECS = 60.0
Made = TypeVar("Made", bound="ServerProcess")


class ServerProcess(ABC):
    """Server process. Subclasses set ``system`` (as in ``user.SYSTEM.key`` of connectors) and the abstract methods.

    ``password``: for clients; ``not_yet``: exceptions of a client before the server accepts requests.
    """

    system: ClassVar[str]
    not_yet: ClassVar[tuple[type[Exception], ...]] = (OSError,)
    password = "not in any log"

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix=f"heronry-{self.system}-", dir="/tmp"))
        self.port = free_port()
        self.process: subprocess.Popen[bytes] | None = None
        self.password_file = self.folder / "password"
        self.password_file.write_text(self.password + "\n")
        self.as_user: dict[str, Any] = {}  # of Popen

    @property
    @abstractmethod
    def address(self) -> dict[str, str]:
        """Return the address in the form of the connector's configuration, without a password."""

    @abstractmethod
    def command(self) -> list[str]:
        """Return the command to run in the foreground."""

    @abstractmethod
    def greet(self) -> None:
        """Send a request. Raises one of ``not_yet`` before the server accepts requests."""

    def config(self, **more: Any) -> dict[str, Any]:
        """Return the configuration of a connector; keys of ``more`` omit their ``user.SYSTEM.``."""
        given = {**self.address, "password.file": str(self.password_file)}
        return {f"user.{self.system}.{key}": value for key, value in {**given, **more}.items()}

    def start(self) -> None:
        """Start the server and wait until it accepts requests."""
        die_with_us = ["setpriv", "--pdeathsig", "KILL"] if shutil.which("setpriv") else []
        with (self.folder / "server.log").open("ab") as log:
            self.process = subprocess.Popen(
                [*die_with_us, *self.command()], stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=self.folder,
                **self.as_user,
            )  # fmt: skip
        deadline = time.monotonic() + START_SECS
        while True:
            try:
                return self.greet()
            except self.not_yet as error:
                if time.monotonic() > deadline:
                    log_text = (self.folder / "server.log").read_text(errors="replace")[-500:]
                    raise TimeoutError(f"the server never served: {log_text}") from error
                time.sleep(0.05)

    def end(self, process: subprocess.Popen[bytes]) -> None:
        """End the process as by a power cut."""
        process.kill()

    def kill(self) -> None:
        """Kill the server and wait for its end; its data remains."""
        process, self.process = self.process, None
        if process is not None:
            self.end(process)
            process.wait(START_SECS)

    def close(self) -> None:
        """End the server, and remove its files."""
        self.kill()
        shutil.rmtree(self.folder)


@contextlib.contextmanager
def running_server(kind: type[Made]) -> Iterator[Made]:
    """Yield a running server, and remove it afterwards."""
    made = kind()
    try:
        made.start()
        yield made
    finally:
        made.close()
