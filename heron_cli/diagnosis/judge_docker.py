"""What the scheduler ``docker``, a cluster by compose and the scheduler ``swarm`` need of a Docker engine: findings of
facts that ``look_docker`` has gathered.

An engine that does not answer is one finding: nothing else is to be said of it then.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from heron_cli.diagnosis.findings import Finding, bad, cure_for, good, note, numbers, some

ENGINE, SWARM = "Docker", "Docker Swarm"
ENGINE_NEEDED = (20, 10)  # docs/how-to/deploy/swarm.md; of one engine alone it is the oldest that was tried
GiB = 1 << 30
DISK_NEEDED_BYTES, DISK_WANTED_BYTES = GiB, 5 * GiB  # a volume may take 4 GiB (topology.volume.disk), images one more
NETWORKS_AT_ONCE = 30  # of the address pools that an engine has by itself; each topology takes one
_CURES = {
    "no command docker": "deploy/docker-setup, or https://docs.docker.com/engine/install/",
    "permission denied": "sudo usermod -aG docker $USER, and log in again.",
    "does not answer within": "sudo systemctl restart docker; journalctl -u docker says why.",
    "cannot connect": "sudo systemctl start docker, or set DOCKER_HOST to where the engine listens.",
}


@dataclass(frozen=True, slots=True)
class Node:
    """A node as ``docker node ls`` has it; ``reached``: its port 7946 from here, None if that was not tried."""

    name: str
    status: str
    availability: str
    engine: str
    reached: bool | None = None


@dataclass(frozen=True, slots=True)
class Storage:
    """A folder that all nodes shall see: why it cannot be used ("" if it can), and its network file system."""

    path: str
    trouble: str = ""
    network: str = ""


@dataclass(frozen=True, slots=True)
class DockerFacts:
    """``info``: what ``docker info`` says, empty with its ``trouble``. ``taken``: ports of ours that another program
    has. ``free_bytes``: None where the engine's disk is not this machine's. ``nodes``: None where nobody may ask."""

    info: Mapping[str, Any]
    trouble: str = ""
    image: str = "heronry:latest"
    has_image: bool = False
    compose: str = ""
    buildx: str = ""
    taken: tuple[int, ...] = ()
    networks: int = 0
    free_bytes: int | None = None
    nodes: tuple[Node, ...] | None = None
    storage: Storage | None = None


def engine(facts: DockerFacts) -> Finding:
    """Whether there is an engine that answers, and which."""
    if facts.trouble:
        return bad(ENGINE, facts.trouble, cure_for(facts.trouble, _CURES, "docker info says more."))
    version = str(facts.info.get("ServerVersion", ""))
    if facts.info.get("OSType", "linux") != "linux":
        return bad(ENGINE, f"its containers are of {facts.info['OSType']}", "Switch the engine to Linux containers.")
    if numbers(version) < ENGINE_NEEDED:
        return bad(ENGINE, f"server {version} is too old", "Install Docker 20.10 or newer.")
    return good(ENGINE, f"server {version}")


def member(facts: DockerFacts) -> Finding:
    """Whether the engine is a manager of a swarm, where an api server with ``--scheduler swarm`` can run."""
    swarm = facts.info.get("Swarm") or {}
    match swarm.get("LocalNodeState"), bool(swarm.get("ControlAvailable")):
        case "active", True:
            return good(SWARM, "this engine is a manager of a swarm")
        case "active", _:
            return bad(SWARM, "this engine is a worker", "use a manager's engine, or docker node promote it there.")
        case "locked", _:
            return bad(SWARM, "this manager is locked", "docker swarm unlock.")
        case "error" | "pending", _:
            why = str(swarm.get("Error") or "docker info says why")
            return bad(SWARM, f"it is not joined: {why}", "docker swarm leave --force, and join again.")
    return bad(SWARM, "there is none", "docker swarm init --advertise-addr ADDRESS.")


def docker_findings(facts: DockerFacts) -> Iterator[Finding]:
    """For the scheduler ``docker``: an engine that holds what it promises, with the image."""
    yield engine(facts)
    if facts.trouble:
        return
    yield from _limits(facts.info)
    yield _image(facts, built=False)
    yield from _room(facts)


def compose_findings(facts: DockerFacts) -> Iterator[Finding]:
    """For ``make up``, which builds the images itself."""
    yield engine(facts)
    if facts.trouble:
        return
    yield from _limits(facts.info)
    yield from _tools(facts)
    yield _image(facts, built=True)
    yield from _room(facts)
    yield _ports(facts)


def swarm_findings(facts: DockerFacts) -> Iterator[Finding]:
    """For the scheduler ``swarm`` on this manager, with its services by compose."""
    yield engine(facts)
    if facts.trouble:
        return
    yield member(facts)
    if "overlay" not in (facts.info.get("Plugins") or {}).get("Network", ()):
        yield bad("overlay networks", "the engine has no driver for them", "sudo modprobe vxlan; restart the engine.")
    if facts.nodes is not None:
        yield from _nodes(facts.nodes)
    yield from _limits(facts.info)
    yield from _tools(facts)
    yield _image(facts, built=False)
    yield from _other_images(facts)
    yield from _room(facts)
    yield _ports(facts)
    yield _storage(facts)


def _limits(info: Mapping[str, Any]) -> Iterator[Finding]:
    """Without them the kernel holds no topology to what it was granted."""
    names = {"MemoryLimit": "memory", "CpuCfsQuota": "cores", "PidsLimit": "processes"}
    absent = [what for key, what in names.items() if info.get(key) is False]
    if absent:
        cure = "Boot with cgroup_enable=memory, or another kernel; docker info warns of the same."
        yield note("limits", f"the engine holds no container to its {', '.join(absent)}", cure)
    else:
        yield good("limits", f"of {', '.join(names.values())} are held (cgroups v{info.get('CgroupVersion', '?')})")


def _image(facts: DockerFacts, *, built: bool) -> Finding:
    if facts.has_image:
        return good("image", f"{facts.image} is on the engine")
    if built:
        return note("image", f"{facts.image} is not on the engine", "make up builds it, or make image by itself.")
    return bad("image", f"{facts.image} is not on the engine", "make image, or name another in HERONRY_IMAGE.")


def _tools(facts: DockerFacts) -> Iterator[Finding]:
    for check, version in (("Compose", facts.compose), ("buildx", facts.buildx)):
        if not version:
            yield bad(check, "there is none", f"deploy/docker-setup, or install docker-{check.lower()}-plugin.")
        elif check == "Compose" and numbers(version) < (2,):
            yield bad(check, f"{version} is too old", "Install Compose v2 (docker-compose-plugin).")
        else:
            yield good(check, version)


def _room(facts: DockerFacts) -> Iterator[Finding]:
    if facts.free_bytes is not None:
        text = f"{facts.free_bytes / GiB:.1f} GiB free in {facts.info.get('DockerRootDir', 'its folder')}"
        cure = "docker system df shows by what; docker system prune."
        if facts.free_bytes < DISK_NEEDED_BYTES:
            yield bad("disk of the engine", text, cure)
        elif facts.free_bytes < DISK_WANTED_BYTES:
            yield note("disk of the engine", f"{text}, and one topology's volume may take 4", cure)
        else:
            yield good("disk of the engine", text)
    if facts.networks >= NETWORKS_AT_ONCE - 2 and not facts.info.get("DefaultAddressPools"):
        cure = "docker network prune, or widen default-address-pools in /etc/docker/daemon.json."
        yield note("networks", f"{facts.networks} of about {NETWORKS_AT_ONCE} are in use", cure)


def _ports(facts: DockerFacts) -> Finding:
    if not facts.taken:
        return good("ports", "those of the cluster are free, or the cluster's own")
    taken = ", ".join(str(port) for port in facts.taken)
    cure = "HERONRY_API_PORT=19000 HERONRY_TRACKER_PORT=18888 make up, or end that program (ss -ltnp)."
    return bad("ports", f"another program has {taken} of 127.0.0.1", cure)


def _nodes(nodes: tuple[Node, ...]) -> Iterator[Finding]:
    there = [node for node in nodes if node.status == "ready" and node.availability == "active"]
    text = f"{len(there)} of {len(nodes)} take tasks"
    if not there:
        cure = "docker node ls; docker node update --availability active NODE."
        yield bad("nodes", text, cure)
    elif len(there) < len(nodes):
        others = [f"{node.name} is {node.status}, {node.availability}" for node in nodes if node not in there]
        cure = "docker node update --availability active NODE; start its engine; docker node rm NODE."
        yield note("nodes", f"{text}: {some(others)}", cure)
    else:
        yield good("nodes", text)
    old = [f"{node.name} ({node.engine})" for node in nodes if node.engine and numbers(node.engine) < ENGINE_NEEDED]
    if old:
        yield bad("engines of nodes", f"too old: {some(old)}", "Install Docker 20.10 or newer there.")
    cut_off = [node.name for node in there if node.reached is False]
    if cut_off:
        cure = "Open TCP and UDP 7946 and UDP 4789 between all nodes, and TCP 2377 of managers."
        yield bad("ports of nodes", f"7946 is not reached on {some(cut_off)}", cure)


def _other_images(facts: DockerFacts) -> Iterator[Finding]:
    """Tasks name the image by its id, so a node fetches it from a registry or has the very same."""
    others = len([node for node in facts.nodes or () if node.status == "ready"]) - 1
    if others > 0 and facts.has_image and "@sha256:" not in facts.image:
        cure = f"docker save {facts.image} | ssh NODE docker load, or name it by digest in HERONRY_IMAGE."
        yield note("image on nodes", f"{others} more must have the very same, which is not seen from here", cure)


def _storage(facts: DockerFacts) -> Finding:
    if facts.storage is None:
        cure = "If topologies shall keep state: HERONRY_SWARM_STORAGE=FOLDER deploy/up … -f deploy/swarm-storage.yml."
        return note("shared storage", "none is named: EFFECTIVELY_ONCE is refused", cure)
    path = facts.storage.path
    if facts.storage.trouble:
        cure = f"Mount it on every node; sudo chown 10001 {path}."
        return bad("shared storage", f"{path}: {facts.storage.trouble}", cure)
    if not facts.storage.network and len(facts.nodes or ()) > 1:
        return note("shared storage", f"{path} is on a disk of this machine", "Use it if every node mounts it (NFS).")
    return good("shared storage", f"{path} is writable for uid 10001")
