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
    """One server. Derive, say ``system`` (also the connector's part of ``user.SYSTEM.key``), and write the rest.

    ``password``: what clients have to give; ``not_yet``: what a client meets until it serves.
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
        """Where it is, as the connector's configuration says it, without a password."""

    @abstractmethod
    def command(self) -> list[str]:
        """What is run, in the foreground."""

    @abstractmethod
    def greet(self) -> None:
        """Ask it something. Raises one of ``not_yet`` while it does not serve."""

    def config(self, **more: Any) -> dict[str, Any]:
        """The configuration of a connector; keys of ``more`` without their ``user.SYSTEM.``."""
        given = {**self.address, "password.file": str(self.password_file)}
        return {f"user.{self.system}.{key}": value for key, value in {**given, **more}.items()}

    def start(self) -> None:
        """Start, and wait until it serves."""
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
        """As by a power cut."""
        process.kill()

    def kill(self) -> None:
        """It is gone when this returns; its data is there."""
        process, self.process = self.process, None
        if process is not None:
            self.end(process)
            process.wait(START_SECS)

    def close(self) -> None:
        """End it, and remove all it had."""
        self.kill()
        shutil.rmtree(self.folder)


@contextlib.contextmanager
def running_server(kind: type[Made]) -> Iterator[Made]:
    """A server that serves, and leaves nothing behind."""
    made = kind()
    try:
        made.start()
        yield made
    finally:
        made.close()
