"""The facts for ``judge_docker``: by the docker command, which every operator has, and a few looks at this machine."""

from __future__ import annotations

import json
import os
import shutil
import socket
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from heron_cli.diagnosis.asking import Answer, ask
from heron_cli.diagnosis.judge_docker import DockerFacts, Node, Storage
from heron_runtime.state.filesystem import network_file_system

CODE_UID = 10001  # heronry's in the image (deploy/Dockerfile)
GOSSIP_PORT, KNOCK_SECONDS = 7946, 2.0


def look(environment: Mapping[str, str] = os.environ, *, whole: bool = True) -> DockerFacts:
    """The engine that the docker command speaks to; not ``whole``: whether it answers, and what it says of itself."""
    answer = ask(["docker", "info", "--format", "{{json .}}"])
    info, trouble = _info(answer)
    if trouble or not whole:
        return DockerFacts(info, trouble)
    here = _is_here(environment)
    image = environment.get("HERONRY_IMAGE") or f"heronry:{environment.get('HERONRY_TAG') or 'latest'}"
    manager = (info.get("Swarm") or {}).get("ControlAvailable")
    return DockerFacts(
        info,
        image=image,
        has_image=not ask(["docker", "image", "inspect", "--format", "{{.Id}}", image]).trouble,
        compose=_version("docker", "compose", "version", "--short"),
        buildx=_version("docker", "buildx", "version"),
        taken=_taken(environment) if here else (),
        networks=len(ask(["docker", "network", "ls", "--quiet"]).said.split()),
        free_bytes=_free(info) if here else None,
        nodes=_nodes(here=here) if manager else None,
        storage=_storage(environment.get("HERONRY_SWARM_STORAGE", "")),
    )


def _info(answer: Answer) -> tuple[Mapping[str, Any], str]:
    """``docker info`` may end well and say that no server answered: it has ServerErrors then, and no version."""
    if answer.trouble and not answer.said:
        return {}, answer.trouble
    try:
        info = json.loads(answer.said)
    except ValueError:
        return {}, answer.trouble or "`docker info` says what is no JSON"
    errors = info.get("ServerErrors") or []
    if errors or not info.get("ServerVersion"):
        return {}, str(errors[0]) if errors else answer.trouble or "no server answers"
    return info, ""


def _version(*command: str) -> str:
    """What a plug-in of the docker command says of itself; "" if it is not there."""
    answer = ask(command)
    return "" if answer.trouble else answer.said


def _is_here(environment: Mapping[str, str]) -> bool:
    """Whether the engine is this machine's, so that its disk and ports are, too."""
    host = environment.get("DOCKER_HOST", "")
    if not host:
        host = ask(["docker", "context", "inspect", "--format", "{{.Endpoints.docker.Host}}"]).said
    return host.startswith("unix://") or not host


def _taken(environment: Mapping[str, str]) -> tuple[int, ...]:
    """Ports of the cluster that answer on 127.0.0.1, unless its own services publish them."""
    project = environment.get("COMPOSE_PROJECT_NAME") or "heronry"
    mine = f"label=com.docker.compose.project={project}"
    published = ask(["docker", "ps", "--filter", mine, "--format", "{{.Ports}}"]).said
    wanted = (("HERONRY_API_PORT", 9000), ("HERONRY_TRACKER_PORT", 8888))
    ports = [int(text) if (text := environment.get(name, "")).isdecimal() else port for name, port in wanted]
    return tuple(port for port in ports if f":{port}->" not in published and _answers("127.0.0.1", port))


def _answers(host: str, port: int) -> bool:
    try:
        with socket.create_connection((host, port), timeout=KNOCK_SECONDS):
            return True
    except OSError:
        return False


def _free(info: Mapping[str, Any]) -> int | None:
    try:
        return shutil.disk_usage(str(info["DockerRootDir"])).free
    except (OSError, KeyError):
        return None  # not ours to see


def _nodes(*, here: bool) -> tuple[Node, ...] | None:
    answer = ask(["docker", "node", "ls", "--format", "{{json .}}"])
    if answer.trouble:
        return None
    found = []
    for line in answer.said.splitlines():
        entry = json.loads(line)
        own = entry.get("Self") in (True, "true")
        ready = entry["Status"].lower() == "ready"
        reached = _answers(_address(entry["ID"]), GOSSIP_PORT) if here and ready and not own else None
        version = entry.get("EngineVersion", "")
        found.append(Node(entry["Hostname"], entry["Status"].lower(), entry["Availability"].lower(), version, reached))
    return tuple(found)


def _address(node: str) -> str:
    return ask(["docker", "node", "inspect", "--format", "{{.Status.Addr}}", node]).said


def _storage(path: str) -> Storage | None:
    """``HERONRY_SWARM_STORAGE``, judged for the user that containers run as."""
    if not path:
        return None
    folder = Path(path)
    try:
        found = folder.stat()
        if not stat.S_ISDIR(found.st_mode):
            return Storage(path, "it is no folder")
        if not (found.st_mode & stat.S_IWOTH or (found.st_uid == CODE_UID and found.st_mode & stat.S_IWUSR)):
            return Storage(path, f"uid {CODE_UID} may not write there")
        return Storage(path, network=network_file_system(folder) or "")
    except OSError as error:
        return Storage(path, error.strerror or str(error))
