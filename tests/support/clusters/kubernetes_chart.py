"""Heronry installed by its Helm chart: two API servers that use the ZooKeeper of the manifests.

Helm's own program (``deploy/helm-setup``) renders and installs the chart.
"""

from __future__ import annotations

import json
import os
from typing import Any

import yaml

from tests.support.clusters.commands import ROOT
from tests.support.clusters.kubernetes import IMAGES, TAG, K8sCluster
from tests.support.clusters.kubernetes_nodes import CACHE, run

HELM = os.environ.get("HERONRY_HELM") or str(CACHE.parent / "helm" / "helm")
CHART = ROOT / "deploy" / "helm" / "heronry"
_BALANCER = f"heronry-balancer:{TAG}"
_LOOK = (
    "import urllib.request as r; r.urlopen(r.Request('http://127.0.0.1:9000/leader', headers={'Host': 'localhost'}))"
)


def render(values: dict[str, Any], namespace: str = "heronry") -> list[dict[str, Any]]:
    """Return the objects of a release."""
    command = (HELM, "template", "heronry", str(CHART), "--namespace", namespace, "--values", "-")
    return [made for made in yaml.safe_load_all(run(*command, input=json.dumps(values)).stdout) if made]


def refusal(values: dict[str, Any]) -> str:
    """Return Helm's error for invalid values."""
    done = run(HELM, "template", "heronry", str(CHART), "--values", "-", check=False, input=json.dumps(values))
    assert done.returncode != 0, done.stdout
    return done.stderr


class K8sPair(K8sCluster):
    """Release with two API servers, not installed yet. ``first`` has the ZooKeeper, and has loaded its images."""

    namespace = "pair"
    port = 9001

    def __init__(self, first: K8sCluster) -> None:
        super().__init__(first.nodes)
        self._first = first

    def helm(self, *arguments: str, stdin: str | None = None) -> str:
        """Return the output of Helm, run as the administrator."""
        folder = self.nodes.folder / "helm"
        given = {
            **os.environ,
            "HELM_CACHE_HOME": f"{folder}",
            "HELM_CONFIG_HOME": f"{folder}",
            "HELM_DATA_HOME": f"{folder}",
        }
        where = ("--kubeconfig", str(self.nodes.kubeconfig), "--namespace", self.namespace)
        return self.nodes.inside(HELM, *where, *arguments, input=stdin, env=given).stdout

    def up(self) -> None:
        """Start both API servers and wait until one leads."""
        run("deploy/build", "balancer", cwd=ROOT, env=self.environment)
        self.nodes.load(_BALANCER)
        self.nodes.kubectl("create", "namespace", self.namespace)
        self.make_disk("home", 10001, "ReadWriteMany")
        certificate = self.nodes.folder / "zookeeper" / "zookeeper.pem"
        self.kubectl("create", "secret", "generic", "store", f"--from-file=zookeeper.heronry.svc.pem={certificate}")
        self.install(self.values())
        self.login()

    def values(self) -> dict[str, Any]:
        """Return the values of the release."""
        return {
            "images": {"heronry": IMAGES["heronry:latest"], "balancer": _BALANCER},
            "apiServers": 2,
            "zookeeper": {"enabled": False},
            "state": "zookeeper+tls://zookeeper.heronry.svc:2281/pair",
            "certificates": {"secret": "store", "files": ["zookeeper.heronry.svc.pem"]},
        }

    def install(self, values: dict[str, Any]) -> None:
        """Install or update the release; every Pod is ready when this returns."""
        command = ("upgrade", "--install", "heronry", str(CHART), "--values", "-", "--wait", "--timeout", "5m")
        self.helm(*command, stdin=json.dumps(values))

    def leaders(self) -> list[str]:
        """Return the Pods whose API server leads: one, or briefly none."""
        return [pod for pod in ("api-0", "api-1") if self._leads(pod)]

    def _leads(self, pod: str) -> bool:
        asked = ("exec", pod, "--container", "api", "--", "python", "-c", _LOOK + "; print('leads')")
        return self.kubectl(*asked, check=False) == "leads"

    def pod(self, name: str) -> dict[str, Any]:
        """Return a Pod of the services."""
        found: dict[str, Any] = json.loads(self.kubectl("get", "pod", name, "--output", "json"))
        return found

    def left(self, name: str) -> list[str]:
        """Return what is left of a topology, whose storage is not shared here."""
        ours = f"org.heronry.topology={name}"
        return self.kubectl("get", "pods,secrets,configmaps,services", "--selector", ours, "--output", "name").split()

    def down(self) -> None:
        """Uninstall the release."""
        self.hang_up()
        self.helm("uninstall", "heronry", "--wait")
        self.nodes.kubectl("delete", "namespace", self.namespace)
        super().down()
