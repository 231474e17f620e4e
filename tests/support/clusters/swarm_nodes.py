"""A real Docker Swarm on one machine: each node is an engine in a container, on an internal network.

The first node is the manager. A node gets every capability that this machine's engine may grant, which is less than
``--privileged``, and a volume for the data of its engine. ``/sockets`` of a node is a folder of the tests, through
which they reach its engine. ``shared`` is one folder that all nodes mount at the same path, like a file server.
``down`` removes everything with the label ``heronry-test-swarm``.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

from tests.support.waiting import wait_until

FOLDER = Path(__file__).resolve().parents[2] / "swarm"  # the image of a node
IMAGE = "heronry-test-node"
LABEL = "heronry-test-swarm"
COMMAND_SECONDS = 300.0
NODE_MEMORY = "3g"
_RIGHTS = (
    *("--cap-add", "ALL", "--cap-drop", "SYS_RESOURCE", "--cgroupns", "private"),
    *("--security-opt", "seccomp=unconfined", "--security-opt", "apparmor=unconfined"),
    *("--security-opt", "systempaths=unconfined", "--device-cgroup-rule", "a *:* rwm"),
)


def run(*command: str, check: bool = True, **arguments: Any) -> subprocess.CompletedProcess[str]:
    """Run a command; a failure includes its output."""
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=COMMAND_SECONDS, **arguments)
    said = f"{' '.join(command)}: exit {done.returncode}\n{done.stdout[-4000:]}\n{done.stderr[-4000:]}"
    assert done.returncode == 0 or not check, said
    return done


def outer(*arguments: str, check: bool = True) -> str:
    """Return the output of ``docker`` on this machine's engine."""
    return run("docker", *arguments, check=check).stdout.strip()


class SwarmNodes:
    """Engines in one swarm. Node numbers start at 1, the manager."""

    def __init__(self, count: int = 3) -> None:
        self.name = f"heronry-swarm-{secrets.token_hex(3)}"
        self.count = count
        self.folder = Path(tempfile.mkdtemp(prefix="heronry-swarm-"))
        self.shared = self.folder / "shared"
        self.began = time.monotonic()

    def storage(self, name: str) -> Path:
        """Return a folder that all nodes mount."""
        folder = self.shared / name
        folder.mkdir(exist_ok=True)
        folder.chmod(0o777)
        return folder

    def lap(self, what: str) -> None:
        """Print a message with the time."""
        print(f"{time.monotonic() - self.began:6.1f} s  {what}", flush=True)

    def node(self, number: int) -> str:
        """Return the name of a node's container, which is also the node's name."""
        return f"{self.name}-{number}"

    def address(self, number: int) -> str:
        """Return the DOCKER_HOST of a node's engine."""
        return f"unix://{self.folder / str(number) / 'docker.sock'}"

    def engine(self, number: int, *arguments: str, check: bool = True) -> str:
        """Return the output of ``docker`` on a node."""
        environment = {**os.environ, "DOCKER_HOST": self.address(number)}
        return run("docker", *arguments, check=check, env=environment).stdout.strip()

    def ip(self, number: int) -> str:
        """Return the address of a node on the network of nodes, which this machine reaches."""
        shown = "{{range .NetworkSettings.Networks}}{{.IPAddress}}{{end}}"
        return outer("inspect", "--format", shown, self.node(number))

    # Start.

    def up(self) -> None:
        """Start the engines, and a swarm of them that detects a lost node within some seconds."""
        run("docker", "build", "--quiet", "--tag", IMAGE, str(FOLDER / "node"))
        outer("network", "create", "--internal", "--label", f"{LABEL}={self.name}", self.name)
        self.shared.mkdir()
        self.shared.chmod(0o777)
        for number in range(1, self.count + 1):
            self._make(number)
        for number in range(1, self.count + 1):
            self.answers(number)
        advertise = ("--advertise-addr", self.ip(1), "--listen-addr", self.ip(1))
        pool = ("--default-addr-pool", "10.213.0.0/16", "--default-addr-pool-mask-length", "24")
        self.engine(1, "swarm", "init", *advertise, *pool, "--dispatcher-heartbeat", "1s")
        token = self.engine(1, "swarm", "join-token", "--quiet", "worker")
        for number in range(2, self.count + 1):
            self.engine(number, "swarm", "join", "--token", token, f"{self.ip(1)}:2377")

    def _make(self, number: int) -> None:
        name = self.node(number)
        sockets = self.folder / str(number)
        sockets.mkdir()
        outer(
            "run", "--detach", "--name", name, "--hostname", name, "--label", f"{LABEL}={self.name}",
            "--network", self.name, *_RIGHTS, "--memory", NODE_MEMORY, "--stop-timeout", "5",
            "--volume", f"{name}:/var/lib/docker", "--volume", f"{sockets}:/sockets",
            "--volume", f"{self.shared}:{self.shared}", IMAGE,
        )  # fmt: skip

    def answers(self, number: int) -> None:
        """Wait until a node's engine answers."""
        look = ("docker", "--host", self.address(number), "version")
        wait_until(lambda: run(*look, check=False).returncode == 0, f"the engine of node {number} answers")

    def load(self, image: str, *numbers: int) -> None:
        """Load an image of this machine on nodes (on all by default)."""
        archive = self.folder / "image.tar"
        outer("save", "--output", str(archive), image)
        for number in numbers or range(1, self.count + 1):
            self.engine(number, "load", "--quiet", "--input", str(archive))
        archive.unlink()

    # Faults.

    def state(self, number: int) -> str:
        """Return the state of a node according to the manager: ready, down."""
        return self.engine(1, "node", "inspect", "--format", "{{.Status.State}}", self.node(number))

    def is_now(self, number: int, state: str) -> None:
        """Wait until the manager reports this state."""
        wait_until(lambda: self.state(number) == state, f"node {number} is {state}")

    def kill(self, number: int) -> None:
        """Power a node off: all its processes end."""
        outer("kill", self.node(number))

    def start(self, number: int) -> None:
        """Power a node on again."""
        outer("start", self.node(number))
        self.answers(number)

    def pause(self, number: int) -> None:
        """Freeze all processes of a node."""
        outer("pause", self.node(number))

    def resume(self, number: int) -> None:
        """Resume all processes of a node."""
        outer("unpause", self.node(number))

    def cut_off(self, number: int) -> None:
        """Isolate a node from the others; its processes and the shared storage keep working."""
        outer("network", "disconnect", self.name, self.node(number))

    def reach(self, number: int) -> None:
        """Connect a node to the network again."""
        outer("network", "connect", self.name, self.node(number))

    # The end.

    def down(self) -> None:
        """Remove everything, regardless of its state. Idempotent."""
        ours = ("--filter", f"label={LABEL}={self.name}")
        for container in outer("ps", "--all", "--quiet", *ours).split():
            outer("rm", "--force", "--volumes", container, check=False)
        for number in range(1, self.count + 1):
            outer("volume", "rm", "--force", self.node(number), check=False)
        for network in outer("network", "ls", "--quiet", *ours).split():
            outer("network", "rm", network, check=False)
        with contextlib.suppress(OSError):
            shutil.rmtree(self.folder)
