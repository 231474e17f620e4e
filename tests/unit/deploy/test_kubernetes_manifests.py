"""Access of a Kubernetes cluster's containers to the API server's home."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml

DEPLOY = Path(__file__).resolve().parents[3] / "deploy"
OPEN = {"/srv/heronry/topologies": "topologies", "/srv/heronry/reader": "reader"}  # as in docker-compose.yml


def pod() -> dict[str, Any]:
    documents = yaml.safe_load_all((DEPLOY / "kubernetes.yml").read_text())
    api = next(d for d in documents if d["kind"] == "StatefulSet" and d["metadata"]["name"] == "api")
    found: dict[str, Any] = api["spec"]["template"]["spec"]
    return found


def test_tracker_cannot_read_the_admin_token() -> None:
    tracker = next(c for c in pod()["containers"] if c["name"] == "tracker")
    home = [mount for mount in tracker["volumeMounts"] if mount["name"] == "home"]
    assert {mount["mountPath"]: mount.get("subPath") for mount in home} == OPEN
    assert all(mount["readOnly"] for mount in home)
    chart = (DEPLOY / "helm" / "heronry" / "templates" / "api.yaml").read_text()
    block = chart[chart.index("name: tracker\n") : chart.index("volumes:\n")]
    mounts = re.findall(r"name: home, mountPath: (\S+), subPath: (\w+), readOnly: true", block)
    assert dict(mounts) == OPEN
    assert block.count("name: home") == len(OPEN)


def test_folders_are_created_before_the_start() -> None:
    (folders,) = pod()["initContainers"]
    assert set(folders["command"]) >= OPEN.keys()
