"""A real Mosquitto for tests: in a temporary folder, on a free port of 127.0.0.1.

It can be stopped and started again with its sessions, and ends with its test process, however that ends.
"""

from __future__ import annotations

import contextlib
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from paho.mqtt import publish

START_SECS = 60.0


class Mosquitto:
    """One broker. ``password``: what clients have to give."""

    user, password = "heron", "not in any log"

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="heronry-mqtt-"))
        with socket.create_server(("127.0.0.1", 0)) as found:
            self.port = found.getsockname()[1]
        self.process: subprocess.Popen[bytes] | None = None
        self.password_file = self.folder / "password"
        self.password_file.write_text(self.password + "\n")
        users = self.folder / "users"
        subprocess.run(["mosquitto_passwd", "-b", "-c", str(users), self.user, self.password], check=True)
        (self.folder / "mosquitto.conf").write_text(
            f"listener {self.port} 127.0.0.1\nallow_anonymous false\npassword_file {users}\nuser root\n"
            f"persistence true\npersistence_location {self.folder}/\nmax_queued_messages 0\n"
        )

    @property
    def url(self) -> str:
        """Without the password."""
        return f"mqtt://{self.user}@127.0.0.1:{self.port}"

    def config(self, **more: Any) -> dict[str, Any]:
        """The configuration of a connector; keys of ``more`` without their ``user.mqtt.``."""
        given = {"url": self.url, "password.file": str(self.password_file)}
        return {f"user.mqtt.{key}": value for key, value in {**given, **more}.items()}

    def publish(self, topic: str, *bodies: bytes, qos: int = 1, retain: bool = False) -> None:
        """Messages, taken by the broker."""
        publish.multiple(
            [{"topic": topic, "payload": body, "qos": qos, "retain": retain} for body in bodies], "127.0.0.1",
            self.port, auth={"username": self.user, "password": self.password},
        )  # fmt: skip

    def start(self) -> None:
        """Start, and wait until it serves."""
        die_with_us = ["setpriv", "--pdeathsig", "KILL"] if shutil.which("setpriv") else []
        with (self.folder / "server.log").open("ab") as log:
            self.process = subprocess.Popen(
                [*die_with_us, "mosquitto", "-c", str(self.folder / "mosquitto.conf")],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=self.folder,
            )  # fmt: skip
        deadline = time.monotonic() + START_SECS
        while True:
            try:
                socket.create_connection(("127.0.0.1", self.port), timeout=START_SECS).close()
                return
            except OSError as error:
                if time.monotonic() > deadline:
                    log_text = (self.folder / "server.log").read_text(errors="replace")[-500:]
                    raise TimeoutError(f"the broker never served: {log_text}") from error
                time.sleep(0.05)

    def stop(self) -> None:
        """It writes down its sessions."""
        process, self.process = self.process, None
        if process is not None:
            process.terminate()
            process.wait(START_SECS)

    def close(self) -> None:
        """End it, and remove all it had."""
        self.stop()
        shutil.rmtree(self.folder)


@contextlib.contextmanager
def mosquitto() -> Iterator[Mosquitto]:
    """A broker that serves, and leaves nothing behind."""
    made = Mosquitto()
    try:
        made.start()
        yield made
    finally:
        made.close()
