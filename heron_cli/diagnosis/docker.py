"""Requirements of Docker engines: the scheduler ``docker``, a cluster by compose, and the scheduler ``swarm``.

``collect_docker_facts`` asks the docker command, which every operator has, and looks at this machine. The functions
``judge_*`` turn these facts into findings. An engine that does not answer is the only finding.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from heron_cli.diagnosis.findings import Finding, bad, cure_for, good, note, shorten, version_numbers
from heron_cli.diagnosis.probe import CommandOutput, run_command
from heron_runtime.state.filesystem import network_file_system

ENGINE, SWARM = "Docker", "Docker Swarm"
ENGINE_NEEDED = (20, 10)  # docs/how-to/deploy/swarm.md; also the oldest single engine that was tested
GiB = 1 << 30
DISK_NEEDED_BYTES, DISK_WANTED_BYTES = GiB, 5 * GiB  # a volume can use 4 GiB (topology.volume.disk), the images 1 GiB
NETWORKS_AT_ONCE = 30  # networks in the default address pools of an engine; each topology uses one
CODE_UID = 10001  # user heronry of the image (deploy/Dockerfile)
GOSSIP_PORT, CONNECT_SECONDS = 7946, 2.0
_CURES = {
    "command not found: docker": "deploy/docker-setup, or https://docs.docker.com/engine/install/",
    "permission denied": "sudo usermod -aG docker $USER, and log in again.",
    "does not answer within": "sudo systemctl restart docker; journalctl -u docker says why.",
    "cannot connect": "sudo systemctl start docker, or set DOCKER_HOST to where the engine listens.",
}


@dataclass(frozen=True, slots=True)
class SwarmNodeFacts:
    """A node of ``docker node ls``. `reached`: whether its port 7946 answers, None if that was not tried."""

    name: str
    status: str
    availability: str
    engine: str
    reached: bool | None = None


@dataclass(frozen=True, slots=True)
class SwarmStorage:
    """A folder shared by all nodes: why it cannot be used ("" if it can), and its network file system."""

    path: str
    trouble: str = ""
    network: str = ""


@dataclass(frozen=True, slots=True)
class DockerFacts:
    """Facts about the engine that the docker command uses.

    Attributes:
        info: Output of ``docker info``, empty if it failed.
        trouble: Why ``docker info`` failed.
        taken: Ports of the cluster that another program uses.
        free_bytes: None if the engine's disk is not on this machine.
        nodes: None if this engine cannot list them.
    """

    info: Mapping[str, Any]
    trouble: str = ""
    image: str = "heronry:latest"
    has_image: bool = False
    compose: str = ""
    buildx: str = ""
    taken: tuple[int, ...] = ()
    networks: int = 0
    free_bytes: int | None = None
    nodes: tuple[SwarmNodeFacts, ...] | None = None
    storage: SwarmStorage | None = None


def judge_engine(facts: DockerFacts) -> Finding:
    """Check that an engine answers and is new enough."""
    if facts.trouble:
        return bad(ENGINE, facts.trouble, cure_for(facts.trouble, _CURES, "Run docker info."))
    version = str(facts.info.get("ServerVersion", ""))
    if facts.info.get("OSType", "linux") != "linux":
        return bad(
            ENGINE, f"the engine runs {facts.info['OSType']} containers", "Switch the engine to Linux containers."
        )
    if version_numbers(version) < ENGINE_NEEDED:
        return bad(ENGINE, f"server {version} is too old", "Install Docker 20.10 or newer.")
    return good(ENGINE, f"server {version}")


def judge_swarm_membership(facts: DockerFacts) -> Finding:
    """Check that the engine manages a swarm, as an API server with ``--scheduler swarm`` needs."""
    swarm = facts.info.get("Swarm") or {}
    match swarm.get("LocalNodeState"), bool(swarm.get("ControlAvailable")):
        case "active", True:
            return good(SWARM, "this engine is a manager of a swarm")
        case "active", _:
            return bad(
                SWARM, "this engine is a worker", "Use the engine of a manager, or run docker node promote there."
            )
        case "locked", _:
            return bad(SWARM, "this manager is locked", "Run docker swarm unlock.")
        case "error" | "pending", _:
            why = str(swarm.get("Error") or "see docker info")
            return bad(
                SWARM, f"this engine has not joined a swarm: {why}", "Run docker swarm leave --force, and join again."
            )
    return bad(SWARM, "this engine is not in a swarm", "Run docker swarm init --advertise-addr ADDRESS.")


def judge_docker(facts: DockerFacts) -> Iterator[Finding]:
    """Check an engine for the scheduler ``docker``."""
    yield judge_engine(facts)
    if facts.trouble:
        return
    yield from _judge_limits(facts.info)
    yield _judge_image(facts, built=False)
    yield from _judge_space(facts)


def judge_compose(facts: DockerFacts) -> Iterator[Finding]:
    """Check an engine for ``make up``, which builds the images."""
    yield judge_engine(facts)
    if facts.trouble:
        return
    yield from _judge_limits(facts.info)
    yield from _judge_plugins(facts)
    yield _judge_image(facts, built=True)
    yield from _judge_space(facts)
    yield _judge_ports(facts)


def judge_swarm(facts: DockerFacts) -> Iterator[Finding]:
    """Check a manager for the scheduler ``swarm``, with its services by compose."""
    yield judge_engine(facts)
    if facts.trouble:
        return
    yield judge_swarm_membership(facts)
    if "overlay" not in (facts.info.get("Plugins") or {}).get("Network", ()):
        yield bad("overlay networks", "the engine has no driver for them", "sudo modprobe vxlan; restart the engine.")
    if facts.nodes is not None:
        yield from _judge_nodes(facts.nodes)
    yield from _judge_limits(facts.info)
    yield from _judge_plugins(facts)
    yield _judge_image(facts, built=False)
    yield from _judge_other_images(facts)
    yield from _judge_space(facts)
    yield _judge_ports(facts)
    yield _judge_storage(facts)


def _judge_limits(info: Mapping[str, Any]) -> Iterator[Finding]:
    """Check the limits that keep each topology within its resources."""
    names = {"MemoryLimit": "memory", "CpuCfsQuota": "cores", "PidsLimit": "processes"}
    absent = [what for key, what in names.items() if info.get(key) is False]
    if absent:
        cure = "Boot with cgroup_enable=memory, or use another kernel; docker info prints the same warning."
        yield note("limits", f"the engine does not limit the {', '.join(absent)} of containers", cure)
    else:
        yield good("limits", f"{', '.join(names.values())} are limited (cgroups v{info.get('CgroupVersion', '?')})")


def _judge_image(facts: DockerFacts, *, built: bool) -> Finding:
    if facts.has_image:
        return good("image", f"{facts.image} is on the engine")
    if built:
        return note(
            "image", f"{facts.image} is not on the engine", "make up builds it; make image builds only the image."
        )
    return bad("image", f"{facts.image} is not on the engine", "Run make image, or set HERONRY_IMAGE to another one.")


def _judge_plugins(facts: DockerFacts) -> Iterator[Finding]:
    for check, version in (("Compose", facts.compose), ("buildx", facts.buildx)):
        if not version:
            yield bad(check, "not installed", f"Run deploy/docker-setup, or install docker-{check.lower()}-plugin.")
        elif check == "Compose" and version_numbers(version) < (2,):
            yield bad(check, f"{version} is too old", "Install Compose v2 (docker-compose-plugin).")
        else:
            yield good(check, version)


def _judge_space(facts: DockerFacts) -> Iterator[Finding]:
    if facts.free_bytes is not None:
        text = f"{facts.free_bytes / GiB:.1f} GiB free in {facts.info.get('DockerRootDir', 'its folder')}"
        cure = "docker system df shows what uses it; run docker system prune."
        if facts.free_bytes < DISK_NEEDED_BYTES:
            yield bad("disk of the engine", text, cure)
        elif facts.free_bytes < DISK_WANTED_BYTES:
            yield note("disk of the engine", f"{text}; the volume of one topology can use 4 GiB", cure)
        else:
            yield good("disk of the engine", text)
    if facts.networks >= NETWORKS_AT_ONCE - 2 and not facts.info.get("DefaultAddressPools"):
        cure = "Run docker network prune, or extend default-address-pools in /etc/docker/daemon.json."
        yield note("networks", f"{facts.networks} of about {NETWORKS_AT_ONCE} are in use", cure)


def _judge_ports(facts: DockerFacts) -> Finding:
    if not facts.taken:
        return good("ports", "the ports of the cluster are free or in use by the cluster")
    taken = ", ".join(str(port) for port in facts.taken)
    cure = "HERONRY_API_PORT=19000 HERONRY_TRACKER_PORT=18888 make up, or stop that program (ss -ltnp)."
    return bad("ports", f"another program uses {taken} of 127.0.0.1", cure)


def _judge_nodes(nodes: tuple[SwarmNodeFacts, ...]) -> Iterator[Finding]:
    active = [node for node in nodes if node.status == "ready" and node.availability == "active"]
    text = f"{len(active)} of {len(nodes)} accept tasks"
    if not active:
        cure = "Run docker node ls and docker node update --availability active NODE."
        yield bad("nodes", text, cure)
    elif len(active) < len(nodes):
        others = [f"{node.name} is {node.status}, {node.availability}" for node in nodes if node not in active]
        cure = "Run docker node update --availability active NODE, start its engine, or run docker node rm NODE."
        yield note("nodes", f"{text}: {shorten(others)}", cure)
    else:
        yield good("nodes", text)
    old = [
        f"{node.name} ({node.engine})" for node in nodes if node.engine and version_numbers(node.engine) < ENGINE_NEEDED
    ]
    if old:
        yield bad("engines of nodes", f"too old: {shorten(old)}", "Install Docker 20.10 or newer on these nodes.")
    unreachable = [node.name for node in active if node.reached is False]
    if unreachable:
        cure = "Open TCP and UDP 7946 and UDP 4789 between all nodes, and TCP 2377 of managers."
        yield bad("ports of nodes", f"7946 is not reachable on {shorten(unreachable)}", cure)


def _judge_other_images(facts: DockerFacts) -> Iterator[Finding]:
    """Remind of the other nodes: tasks name the image by its id, so each node needs the same one or a registry."""
    others = len([node for node in facts.nodes or () if node.status == "ready"]) - 1
    if others > 0 and facts.has_image and "@sha256:" not in facts.image:
        cure = f"docker save {facts.image} | ssh NODE docker load, or set HERONRY_IMAGE to a name with a digest."
        yield note(
            "image on nodes", f"{others} more nodes need the same image, which cannot be checked from here", cure
        )


def _judge_storage(facts: DockerFacts) -> Finding:
    if facts.storage is None:
        cure = "For topologies that keep state: HERONRY_SWARM_STORAGE=FOLDER deploy/up … -f deploy/swarm-storage.yml."
        return note("shared storage", "not configured: EFFECTIVELY_ONCE is rejected", cure)
    path = facts.storage.path
    if facts.storage.trouble:
        cure = f"Mount it on every node, and run sudo chown 10001 {path}."
        return bad("shared storage", f"{path}: {facts.storage.trouble}", cure)
    if not facts.storage.network and len(facts.nodes or ()) > 1:
        return note(
            "shared storage", f"{path} is on a disk of this machine", "Make sure that every node mounts it (NFS)."
        )
    return good("shared storage", f"{path} is writable for uid 10001")


def collect_docker_facts(environment: Mapping[str, str] = os.environ, *, complete: bool = True) -> DockerFacts:
    """Return facts about the engine of the docker command; unless `complete` only the output of ``docker info``."""
    answer = run_command(["docker", "info", "--format", "{{json .}}"])
    info, trouble = _info(answer)
    if trouble or not complete:
        return DockerFacts(info, trouble)
    local = _is_local(environment)
    image = environment.get("HERONRY_IMAGE") or f"heronry:{environment.get('HERONRY_TAG') or 'latest'}"
    manager = (info.get("Swarm") or {}).get("ControlAvailable")
    return DockerFacts(
        info,
        image=image,
        has_image=not run_command(["docker", "image", "inspect", "--format", "{{.Id}}", image]).trouble,
        compose=_version("docker", "compose", "version", "--short"),
        buildx=_version("docker", "buildx", "version"),
        taken=_taken_ports(environment) if local else (),
        networks=len(run_command(["docker", "network", "ls", "--quiet"]).stdout.split()),
        free_bytes=_free_bytes(info) if local else None,
        nodes=_collect_nodes(local=local) if manager else None,
        storage=_collect_storage(environment.get("HERONRY_SWARM_STORAGE", "")),
    )


def _info(answer: CommandOutput) -> tuple[Mapping[str, Any], str]:
    """Parse ``docker info``, which can succeed without a server: then it has ServerErrors and no version."""
    if answer.trouble and not answer.stdout:
        return {}, answer.trouble
    try:
        info = json.loads(answer.stdout)
    except ValueError:
        return {}, answer.trouble or "the output of `docker info` is not JSON"
    errors = info.get("ServerErrors") or []
    if errors or not info.get("ServerVersion"):
        return {}, str(errors[0]) if errors else answer.trouble or "no server answers"
    return info, ""


def _version(*command: str) -> str:
    """Return the version of a plug-in of the docker command, "" if it is missing."""
    answer = run_command(command)
    return "" if answer.trouble else answer.stdout


def _is_local(environment: Mapping[str, str]) -> bool:
    """Return whether the engine runs on this machine, so that its disk and ports can be checked."""
    host = environment.get("DOCKER_HOST", "")
    if not host:
        host = run_command(["docker", "context", "inspect", "--format", "{{.Endpoints.docker.Host}}"]).stdout
    return host.startswith("unix://") or not host


def _taken_ports(environment: Mapping[str, str]) -> tuple[int, ...]:
    """Return the ports of the cluster that answer on 127.0.0.1 without being published by its services."""
    project = environment.get("COMPOSE_PROJECT_NAME") or "heronry"
    mine = f"label=com.docker.compose.project={project}"
    published = run_command(["docker", "ps", "--filter", mine, "--format", "{{.Ports}}"]).stdout
    wanted = (("HERONRY_API_PORT", 9000), ("HERONRY_TRACKER_PORT", 8888))
    ports = [int(text) if (text := environment.get(name, "")).isdecimal() else port for name, port in wanted]
    return tuple(port for port in ports if f":{port}->" not in published and _answers("127.0.0.1", port))


def _answers(host: str, port: int) -> bool:
    try:
        with socket.create_connection((host, port), timeout=CONNECT_SECONDS):
            return True
    except OSError:
        return False


def _free_bytes(info: Mapping[str, Any]) -> int | None:
    try:
        return shutil.disk_usage(str(info["DockerRootDir"])).free
    except (OSError, KeyError):
        return None  # not readable for this user


def _collect_nodes(*, local: bool) -> tuple[SwarmNodeFacts, ...] | None:
    answer = run_command(["docker", "node", "ls", "--format", "{{json .}}"])
    if answer.trouble:
        return None
    nodes = []
    for line in answer.stdout.splitlines():
        entry = json.loads(line)
        own = entry.get("Self") in (True, "true")
        ready = entry["Status"].lower() == "ready"
        reached = _answers(_address(entry["ID"]), GOSSIP_PORT) if local and ready and not own else None
        version = entry.get("EngineVersion", "")
        nodes.append(
            SwarmNodeFacts(entry["Hostname"], entry["Status"].lower(), entry["Availability"].lower(), version, reached)
        )
    return tuple(nodes)


def _address(node: str) -> str:
    return run_command(["docker", "node", "inspect", "--format", "{{.Status.Addr}}", node]).stdout


def _collect_storage(path: str) -> SwarmStorage | None:
    """Return facts about ``HERONRY_SWARM_STORAGE`` for the user that containers run as."""
    if not path:
        return None
    folder = Path(path)
    try:
        status = folder.stat()
        if not stat.S_ISDIR(status.st_mode):
            return SwarmStorage(path, "not a folder")
        if not (status.st_mode & stat.S_IWOTH or (status.st_uid == CODE_UID and status.st_mode & stat.S_IWUSR)):
            return SwarmStorage(path, f"not writable for uid {CODE_UID}")
        return SwarmStorage(path, network=network_file_system(folder) or "")
    except OSError as error:
        return SwarmStorage(path, error.strerror or str(error))
