"""A real Mosquitto server for tests. It saves its sessions when it ends."""

from __future__ import annotations

import socket
import subprocess

from paho.mqtt import publish

from tests.support.server_process import START_SECS, ServerProcess


class Mosquitto(ServerProcess):
    """MQTT broker."""

    system, user = "mqtt", "heron"

    def __init__(self) -> None:
        super().__init__()
        users = self.folder / "users"
        subprocess.run(["mosquitto_passwd", "-b", "-c", str(users), self.user, self.password], check=True)
        (self.folder / "mosquitto.conf").write_text(
            f"listener {self.port} 127.0.0.1\nallow_anonymous false\npassword_file {users}\nuser root\n"
            f"persistence true\npersistence_location {self.folder}/\nmax_queued_messages 0\n"
        )

    @property
    def url(self) -> str:
        """Return the URL without the password."""
        return f"mqtt://{self.user}@127.0.0.1:{self.port}"

    @property
    def address(self) -> dict[str, str]:
        """Return the address for a connector."""
        return {"url": self.url}

    def command(self) -> list[str]:
        """Return the command of Debian's broker."""
        return ["mosquitto", "-c", str(self.folder / "mosquitto.conf")]

    def greet(self) -> None:
        """Open a connection."""
        socket.create_connection(("127.0.0.1", self.port), timeout=START_SECS).close()

    def end(self, process: subprocess.Popen[bytes]) -> None:
        """End the process so that it saves its sessions."""
        process.terminate()

    def publish(self, topic: str, *bodies: bytes, qos: int = 1, retain: bool = False) -> None:
        """Publish messages, accepted by the broker."""
        publish.multiple(
            [{"topic": topic, "payload": body, "qos": qos, "retain": retain} for body in bodies], "127.0.0.1",
            self.port, auth={"username": self.user, "password": self.password},
        )  # fmt: skip
