"""A Heronry cluster on a real Docker Swarm: ZooKeeper and API server on the manager, topologies on all nodes.

Tests handle it as a user would: with compose files, ``heron`` and ``docker``.
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

from tests.support.clusters.commands import ROOT, ClusterCommands
from tests.support.clusters.swarm_nodes import SwarmNodes, run
from tests.support.waiting import wait_until

PROJECT = "swarmtest"
CLUSTER = "swarm/tests"
TAG = os.environ.get("HERONRY_TAG", "test")
API_PORT = 9000
_FILES = ("-f", "docker-compose.yml", "-f", "deploy/swarm.yml", "-f", "deploy/swarm-storage.yml")


class SwarmCluster(ClusterCommands):
    """Heronry cluster, not started yet."""

    address = CLUSTER

    def __init__(self, nodes: SwarmNodes) -> None:
        self.nodes = nodes
        self.storage = nodes.storage("storage")
        self._names = nodes.folder / "names.yml"  # one API server without a balancer, and its address
        self.environment = {
            **os.environ,
            "COMPOSE_PROJECT_NAME": PROJECT,
            "HERONRY_TAG": TAG,
            "HERONRY_BIND": "0.0.0.0",
            "HERONRY_API_PORT": str(API_PORT),
            "HERONRY_SWARM_STORAGE": str(self.storage),
            "HERONRY_HOME": str(nodes.folder / "home"),
        }

    # Commands.

    def compose(self, *arguments: str, check: bool = True) -> str:
        """Return the output of ``docker compose`` on the manager."""
        environment = {**self.environment, "DOCKER_HOST": self.nodes.address(1)}
        files = (*_FILES, "-f", str(self._names))
        return run("docker", "compose", *files, *arguments, check=check, env=environment, cwd=ROOT).stdout.strip()

    def up(self) -> None:
        """Load the images on the nodes, start the services on the manager, and log in."""
        run("deploy/build", "api", "zookeeper", cwd=ROOT, env=self.environment)
        self.nodes.load(f"heronry:{TAG}")
        self.nodes.load(f"heronry-zookeeper:{TAG}", 1)
        self.nodes.lap("the images are on the nodes")
        api = {
            "command": ["start-api", "--allow-host", self.nodes.ip(1)],
            "deploy": {"replicas": 1},
            "environment": {"HERONRY_ELECT": ""},
            "labels": {"org.heronry.alias": "api"},
            "ports": [f"{API_PORT}:9000"],
        }
        self._names.write_text(json.dumps({"services": {"api": api}}))  # JSON is YAML
        self.compose("up", "--no-build", "--detach", "--wait", "zookeeper", "api")
        self.nodes.lap("the api server is up")
        self.login()

    def login(self) -> None:
        """Log in as ``deploy/up`` instructs."""
        token = self.compose("exec", "-T", "--user", "heronry", "api", "cat", "/srv/heronry/admin-token")
        self.heron("login", "swarm", "--api", f"http://{self.nodes.ip(1)}:{API_PORT}", stdin=token)

    def run_here(self, *command: str, **arguments: Any) -> subprocess.CompletedProcess[str]:
        """Run a command where the cluster can be reached."""
        return run(*command, **arguments)

    def kill(self, name: str) -> None:
        """Run ``heron kill``: no service, secret, network, container, volume or folder of any topology may be left."""
        self.heron("kill", CLUSTER, name)
        wait_until(lambda: not self.left(), f"nothing is left of it: {self.left()}")

    # State of the swarm.

    def services(self, name: str = "") -> dict[int, str]:
        """Return the service of each container, by number."""
        filters = ["--filter", f"label=org.heronry.cluster={PROJECT}"]
        filters += ["--filter", f"label=org.heronry.topology={name}"] if name else []
        found = self.nodes.engine(1, "service", "ls", *filters, "--format", "{{.Name}}").split()
        return {int(service.rsplit("-", 1)[1]): service for service in found}

    def places(self, name: str) -> dict[int, str]:
        """Return the node of each running container, by number."""
        found = {}
        for number, service in self.services(name).items():
            wanted = ("--filter", "desired-state=running", "--format", "{{.Node}} {{.CurrentState}}")
            shown = self.nodes.engine(1, "service", "ps", service, *wanted, check=False)  # it may vanish meanwhile
            for line in shown.splitlines():
                node, _, state = line.partition(" ")
                if state.startswith("Running"):
                    found[number] = node
        return found

    def container(self, name: str, number: int) -> str:
        """Return the id of a topology's running container, or an empty string.

        It reads the state once, since the container may end meanwhile.
        """
        ours = ("--filter", f"label=org.heronry.topology={name}", "--filter", f"label=org.heronry.container={number}")
        wanted = ("--filter", "desired-state=running", "--quiet")
        services = self.nodes.engine(1, "service", "ls", *ours, "--quiet").split()
        tasks = [self.nodes.engine(1, "service", "ps", one, *wanted, check=False).split() for one in services]
        shown = "{{.Status.State}} {{with .Status.ContainerStatus}}{{.ContainerID}}{{end}}"
        for task in (key for keys in tasks for key in keys):
            found = self.nodes.engine(1, "inspect", "--type", "task", "--format", shown, task, check=False).split()
            if len(found) == 2 and found[0] == "running":
                return found[1]
        return ""

    def task(self, service: str) -> tuple[int, str]:
        """Return the node of a service's task, and the id of its container there."""
        key = self.nodes.engine(1, "service", "ps", "--quiet", "--filter", "desired-state=running", service)
        shown = self.nodes.engine(
            1, "inspect", "--type", "task", "--format", "{{.NodeID}} {{.Status.ContainerStatus.ContainerID}}", key
        )  # fmt: skip
        node, container = shown.split()
        name = self.nodes.engine(1, "node", "inspect", "--format", "{{.Description.Hostname}}", node)
        return int(name.rsplit("-", 1)[1]), container

    def left(self, topology: str = "") -> dict[str, list[str]]:
        """Return what is left of topologies, or of one: on the manager, and containers and volumes on each node."""
        label = f"label=org.heronry.topology={topology}" if topology else "label=org.heronry.topology-id"
        ours = ("--quiet", "--filter", label)
        found = {
            kind: self.nodes.engine(1, kind, "ls", *ours).split() for kind in ("service", "secret", "config", "network")
        }
        for number in range(1, self.nodes.count + 1):
            found[f"containers of {number}"] = self.nodes.engine(number, "ps", "--all", *ours).split()
            found[f"volumes of {number}"] = self.nodes.engine(
                number, "volume", "ls", "--quiet", "--filter", "dangling=true"
            ).split()
        found["storage"] = [path.name for path in self.storage.iterdir() if topology.lower() in path.name]
        return {kind: names for kind, names in found.items() if names}

    def folders(self, name: str) -> list[Path]:
        """Return the folders of a topology on the storage."""
        return list(self.storage.glob(f"{PROJECT}_topology-{name.lower()}-*"))

    def explain(self) -> str:
        """Return the state of the cluster, for a failed test."""
        text = [self.nodes.engine(1, "node", "ls", check=False), self.nodes.engine(1, "service", "ls", check=False)]
        for service in self.services().values():
            text.append(self.nodes.engine(1, "service", "ps", "--no-trunc", service, check=False))
            text.append(self.nodes.engine(1, "service", "logs", "--tail", "15", service, check=False)[-3000:])
        text.append(self.compose("logs", "--tail", "60", "api", check=False)[-8000:])
        return "\n".join(text)
