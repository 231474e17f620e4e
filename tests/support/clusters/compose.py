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
SETTINGS = {  # of topologies: what dies is noticed soon
    "heron.state.session.timeout.secs": 4,
    "heron.metrics.interval.secs": 1,
    "heron.stop.grace.secs": 3,
}
T = TypeVar("T")


class Unavailable(Exception):
    """The api server cannot be reached at this moment."""


#: Poll a condition; an api server that does not answer yet counts as false.
wait_for_cluster = partial(wait_until, retry_on=Unavailable)


def run(*command: str, check: bool = True, **arguments: Any) -> subprocess.CompletedProcess[str]:
    """One command; what it says is part of the failure."""
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=COMMAND_SECONDS, **arguments
    )
    said = f"{' '.join(command)}: exit {done.returncode}\n{done.stdout[-4000:]}\n{done.stderr[-4000:]}"
    assert done.returncode == 0 or not check, said
    return done


def docker(*arguments: str, check: bool = True) -> str:
    """What ``docker`` says on stdout."""
    return run("docker", *arguments, check=check).stdout.strip()


def inside(container: str, *command: str, check: bool = True) -> str:
    """What a command in a topology's container says, as the user of Heronry's own processes."""
    return docker("exec", "--user", "heronry", container, *command, check=check)


def stranger(project: str) -> tuple[str, str, str, str]:
    """Options of ``docker run`` for a container that goes with the project, and is none of its services.

    Without the second label it would have that of its image, which compose has built for a service.
    """
    return "--label", f"com.docker.compose.project={project}", "--label", "com.docker.compose.service=test"


class ComposeCluster:
    """Not yet up when it is made. ``arguments`` go to docker compose."""

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
        """For whoever asks where the time goes."""
        print(f"{time.monotonic() - self.began:6.1f} s  {what}", flush=True)

    def shown(self) -> dict[str, str]:
        """The header that trackers want."""
        if not self._token:
            file = "/srv/heronry/reader/tracker-token"
            self._token = self.compose("exec", "-T", "--user", "heronry", "api", "cat", file)
        return {"Authorization": f"Bearer {self._token}"}

    # Commands.

    def up(self) -> str:
        """``deploy/up``, which is ``make up``; what it says."""
        return run("deploy/up", *self.arguments, env=self.environment).stdout

    def compose(self, *arguments: str, check: bool = True) -> str:
        """What ``docker compose`` says."""
        return run("docker", "compose", *self.arguments, *arguments, check=check, env=self.environment).stdout.strip()

    def token(self) -> str:
        """The admin token."""
        return self.compose("exec", "-T", "--user", "heronry", "api", "cat", "/srv/heronry/admin-token")

    def login(self) -> None:
        """As ``deploy/up`` says."""
        self.heron("login", "docker", "--api", f"http://127.0.0.1:{self.api_port}", stdin=self.token())

    def heron(self, *arguments: str, code: int = 0, stdin: str = "", both: bool = False) -> str:
        """One command of the installed ``heron``; it must exit with ``code``; its data, or ``both`` data and talk."""
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
        """A command that only looks, without a new interpreter for it: some are asked again and again."""
        done = CliRunner().invoke(make_app(), arguments, env=self.environment)
        if done.exit_code == EXIT_UNAVAILABLE:
            raise Unavailable(done.output)
        assert done.exit_code == 0, done.output
        return done.stdout

    def status(self, name: str) -> dict[str, Any]:
        """``heron status -o json``."""
        found: dict[str, Any] = json.loads(self.say("status", "docker/tests", name, "-o", "json"))
        return found

    def tracker(self, path: str, host: str = "localhost") -> Any:
        """What the trackers answer, by the one published port. Raises HTTPError."""
        headers = {"Host": host, **self.shown()}
        request = urllib.request.Request(f"http://127.0.0.1:{self.tracker_port}{path}", headers=headers)
        with urllib.request.urlopen(request, timeout=10) as answer:
            return json.loads(answer.read())

    def in_api(self, code: str) -> Any:
        """What a few lines of Python print as JSON in the api's container, with ``store`` open."""
        opened = (
            "import json, os\n"
            "from heron_runtime.state import open_store, paths\n"
            "from heron_runtime.wire import message_codecs\n"
            "store = open_store(os.environ['HERONRY_STATE'], credential_file='/srv/heronry/store-credential')\n"
            "store.open()\n"
        )
        return json.loads(self.compose("exec", "-T", "--user", "heronry", "api", "python", "-c", opened + code))

    # The engine's view.

    def service(self, name: str) -> list[str]:
        """The names of a service's containers."""
        wanted = f"label=com.docker.compose.service={name}"
        ours = f"label=com.docker.compose.project={self.project}"
        return sorted(docker("ps", "--all", "--filter", ours, "--filter", wanted, "--format", "{{.Names}}").split())

    def leading_api(self) -> str:
        """The api server that leads, once one does."""
        request = "GET /leader HTTP/1.0\\r\\nHost: localhost\\r\\n\\r\\n"
        ask = f"exec 3<>/dev/tcp/127.0.0.1/9000; printf '{request}' >&3; head -1 <&3"

        def look() -> str:
            said = {name: docker("exec", name, "bash", "-c", ask, check=False) for name in self.service("api")}
            leads = [name for name, line in said.items() if " 200 " in line]
            assert len(leads) <= 1
            return leads[0] if leads else ""

        return wait_for_cluster(look, "an api server leads")

    def containers(self, topology: str = "") -> dict[int, str]:
        """Number to name of the containers of a topology (of all), dead ones too."""
        filters = ["--filter", f"label=org.heronry.cluster={self.project}"]
        filters += ["--filter", f"label=org.heronry.topology={topology}"] if topology else []
        shown = docker("ps", "--all", *filters, "--format", '{{.Label "org.heronry.container"}} {{.Names}}')
        return {int(number): name for number, name in (line.split() for line in shown.splitlines())}

    def identity(self, container: str, *, check: bool = True) -> str:
        """Of a Docker container, and of its present life; empty if there is none now and that is not to be checked."""
        return docker("inspect", "--format", "{{.Id}} {{.State.StartedAt}}", container, check=check)

    def left(self) -> list[str]:
        """What the engine still has of this cluster."""
        found = []
        for label in (f"org.heronry.cluster={self.project}", f"com.docker.compose.project={self.project}"):
            given = ("--quiet", "--filter", f"label={label}")
            found += docker("ps", "--all", *given).split()
            found += docker("network", "ls", *given).split()
            found += docker("volume", "ls", *given).split()
        return found

    def healthy(self) -> bool:
        """True when every service that runs says so."""
        return "unhealthy" not in (shown := self.compose("ps", "--format", "{{.Health}}")) and "starting" not in shown

    # The end.

    def down(self) -> None:
        """``deploy/down``, which is ``make down``; nothing is left."""
        run("deploy/down", env=self.environment)
        assert self.left() == []

    def explain(self) -> str:
        """The state of things, for a test that has failed."""
        text = [docker("ps", "--all", check=False)]
        text.append(self.compose("logs", "--tail", "40", "api", check=False)[-8000:])
        for name in self.containers().values():
            text += [f"--- {name}", run("docker", "logs", "--tail", "12", name, check=False).stderr[-2500:]]
        return "\n".join(text)

    def close(self) -> None:
        """Remove everything, whatever happened."""
        with contextlib.suppress(subprocess.SubprocessError):
            run("deploy/down", check=False, env=self.environment)
        shutil.rmtree(self.folder, ignore_errors=True)
