"""A Docker Compose cluster with a project, ports, volumes and home of its own.

Tests handle it as a user would: with the scripts of the Makefile, ``heron`` and ``docker``. ``down`` removes everything
and asserts that nothing is left.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.request
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from typer.testing import CliRunner

from heron_cli.application import make_app
from tests.support.ports import free_ports
from tests.support.waiting import wait_until

ROOT = Path(__file__).resolve().parents[3]
COMMAND_SECONDS = 900.0  # the first `deploy/up` of a machine builds every image
EXIT_UNAVAILABLE = 6
TAG = os.environ.get("HERONRY_TAG", "test")
SETTINGS = {  # of topologies: deaths are detected quickly
    "heron.state.session.timeout.secs": 4,
    "heron.metrics.interval.secs": 1,
    "heron.stop.grace.secs": 3,
}
T = TypeVar("T")


class Unavailable(Exception):
    """Signal that the API server cannot be reached at the moment."""


#:  Poll a condition; an API server that does not answer yet counts as false.
wait_for_cluster = partial(wait_until, retry_on=Unavailable)


def run(*command: str, check: bool = True, **arguments: Any) -> subprocess.CompletedProcess[str]:
    """Run a command; a failure includes its output."""
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=COMMAND_SECONDS, **arguments
    )
    said = f"{' '.join(command)}: exit {done.returncode}\n{done.stdout[-4000:]}\n{done.stderr[-4000:]}"
    assert done.returncode == 0 or not check, said
    return done


def docker(*arguments: str, check: bool = True) -> str:
    """Return the standard output of ``docker``."""
    return run("docker", *arguments, check=check).stdout.strip()


def inside(container: str, *command: str, check: bool = True) -> str:
    """Return the output of a command in a topology's container, run as the user of Heronry's own processes."""
    return docker("exec", "--user", "heronry", container, *command, check=check)


def stranger(project: str) -> tuple[str, str, str, str]:
    """Return options of ``docker run`` for a container of the project that is not one of its services.

    Without the second label it would have that of its image, which compose has built for a service.
    """
    return "--label", f"com.docker.compose.project={project}", "--label", "com.docker.compose.service=test"


class ComposeCluster:
    """Docker Compose cluster, not started yet. ``arguments`` are passed to docker compose."""

    def __init__(self, *arguments: str) -> None:
        self.project = f"heronrytest{secrets.token_hex(3)}"
        self.arguments = arguments
        self.folder = Path(tempfile.mkdtemp(prefix="heronry-docker-"))
        self.api_port, self.tracker_port, self.prometheus_port = free_ports(3)
        self.environment = {
            **os.environ,
            "COMPOSE_PROJECT_NAME": self.project,
            "HERONRY_TAG": TAG,
            "HERONRY_API_PORT": str(self.api_port),
            "HERONRY_TRACKER_PORT": str(self.tracker_port),
            "HERONRY_PROMETHEUS_PORT": str(self.prometheus_port),
            "HERONRY_HOME": str(self.folder / "home"),
        }
        self._token = ""
        self.began = time.monotonic()

    def lap(self, what: str) -> None:
        """Print a message with the time."""
        print(f"{time.monotonic() - self.began:6.1f} s  {what}", flush=True)

    def shown(self) -> dict[str, str]:
        """Return the authentication header for trackers."""
        if not self._token:
            file = "/srv/heronry/reader/tracker-token"
            self._token = self.compose("exec", "-T", "--user", "heronry", "api", "cat", file)
        return {"Authorization": f"Bearer {self._token}"}

    # Commands.

    def up(self) -> str:
        """Run ``deploy/up`` (``make up``); return its output."""
        return run("deploy/up", *self.arguments, env=self.environment).stdout

    def compose(self, *arguments: str, check: bool = True) -> str:
        """Return the output of ``docker compose``."""
        return run("docker", "compose", *self.arguments, *arguments, check=check, env=self.environment).stdout.strip()

    def token(self) -> str:
        """Return the admin token."""
        return self.compose("exec", "-T", "--user", "heronry", "api", "cat", "/srv/heronry/admin-token")

    def login(self) -> None:
        """Log in as ``deploy/up`` instructs."""
        self.heron("login", "docker", "--api", f"http://127.0.0.1:{self.api_port}", stdin=self.token())

    def heron(self, *arguments: str, code: int = 0, stdin: str = "", both: bool = False) -> str:
        """Run the installed ``heron``, which must exit with ``code``; return its data (and messages if ``both``)."""
        done = run(sys.executable, "-m", "heron_cli", *arguments, check=False, input=stdin, env=self.environment)
        said = f"heron {' '.join(arguments)}: exit {done.returncode}\n{done.stdout}\n{done.stderr}"
        assert done.returncode == code, said
        return done.stdout + done.stderr if both or code else done.stdout

    def submit(self, file: Path, topology: str, name: str, given: dict[str, Any], *options: str) -> None:
        """Submit; every task runs when this returns."""
        settings = [f"--config-property={key}={value}" for key, value in SETTINGS.items()]
        self.heron(
            "submit", "docker/tests", str(file), topology, "--name", name, "--wait-timeout", "180", *settings, *options,
            "--", json.dumps(given),
        )  # fmt: skip

    def say(self, *arguments: str) -> str:
        """Return the output of a read-only command, run in this process since tests poll it."""
        done = CliRunner().invoke(make_app(), arguments, env=self.environment)
        if done.exit_code == EXIT_UNAVAILABLE:
            raise Unavailable(done.output)
        assert done.exit_code == 0, done.output
        return done.stdout

    def status(self, name: str) -> dict[str, Any]:
        """Return ``heron status -o json``."""
        found: dict[str, Any] = json.loads(self.say("status", "docker/tests", name, "-o", "json"))
        return found

    def tracker(self, path: str, host: str = "localhost") -> Any:
        """Return the answer of the trackers at the published port. Raises HTTPError."""
        headers = {"Host": host, **self.shown()}
        request = urllib.request.Request(f"http://127.0.0.1:{self.tracker_port}{path}", headers=headers)
        with urllib.request.urlopen(request, timeout=10) as answer:
            return json.loads(answer.read())

    def in_api(self, code: str) -> Any:
        """Return the JSON output of Python code in the API server's container, with ``store`` open."""
        opened = (
            "import json, os\n"
            "from heron_runtime.state import open_store, paths\n"
            "from heron_runtime.wire import message_codecs\n"
            "store = open_store(os.environ['HERONRY_STATE'], credential_file='/srv/heronry/store-credential')\n"
            "store.open()\n"
        )
        return json.loads(self.compose("exec", "-T", "--user", "heronry", "api", "python", "-c", opened + code))

    # State of the engine.

    def service(self, name: str) -> list[str]:
        """Return the names of a service's containers."""
        wanted = f"label=com.docker.compose.service={name}"
        ours = f"label=com.docker.compose.project={self.project}"
        return sorted(docker("ps", "--all", "--filter", ours, "--filter", wanted, "--format", "{{.Names}}").split())

    def leading_api(self) -> str:
        """Return the leading API server, once there is one."""
        request = "GET /leader HTTP/1.0\\r\\nHost: localhost\\r\\n\\r\\n"
        ask = f"exec 3<>/dev/tcp/127.0.0.1/9000; printf '{request}' >&3; head -1 <&3"

        def look() -> str:
            said = {name: docker("exec", name, "bash", "-c", ask, check=False) for name in self.service("api")}
            leads = [name for name, line in said.items() if " 200 " in line]
            assert len(leads) <= 1
            return leads[0] if leads else ""

        return wait_for_cluster(look, "an api server leads")

    def containers(self, topology: str = "") -> dict[int, str]:
        """Return the names of a topology's containers (of all topologies) by number, dead ones included."""
        filters = ["--filter", f"label=org.heronry.cluster={self.project}"]
        filters += ["--filter", f"label=org.heronry.topology={topology}"] if topology else []
        shown = docker("ps", "--all", *filters, "--format", '{{.Label "org.heronry.container"}} {{.Names}}')
        return {int(number): name for number, name in (line.split() for line in shown.splitlines())}

    def identity(self, container: str, *, check: bool = True) -> str:
        """Return the identity of a container's current life; empty if there is none and ``check`` is false."""
        return docker("inspect", "--format", "{{.Id}} {{.State.StartedAt}}", container, check=check)

    def left(self) -> list[str]:
        """Return what the engine still has of this cluster."""
        found = []
        for label in (f"org.heronry.cluster={self.project}", f"com.docker.compose.project={self.project}"):
            given = ("--quiet", "--filter", f"label={label}")
            found += docker("ps", "--all", *given).split()
            found += docker("network", "ls", *given).split()
            found += docker("volume", "ls", *given).split()
        return found

    def healthy(self) -> bool:
        """Return True when every running service is healthy."""
        return "unhealthy" not in (shown := self.compose("ps", "--format", "{{.Health}}")) and "starting" not in shown

    # The end.

    def down(self) -> None:
        """Run ``deploy/down`` (``make down``) and check that nothing is left."""
        run("deploy/down", env=self.environment)
        assert self.left() == []

    def explain(self) -> str:
        """Return the state of the cluster, for a failed test."""
        text = [docker("ps", "--all", check=False)]
        text.append(self.compose("logs", "--tail", "40", "api", check=False)[-8000:])
        for name in self.containers().values():
            text += [f"--- {name}", run("docker", "logs", "--tail", "12", name, check=False).stderr[-2500:]]
        return "\n".join(text)

    def close(self) -> None:
        """Remove everything, regardless of its state."""
        with contextlib.suppress(subprocess.SubprocessError):
            run("deploy/down", check=False, env=self.environment)
        shutil.rmtree(self.folder, ignore_errors=True)
