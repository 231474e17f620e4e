"""A Heronry cluster on a real Kubernetes, installed from ``deploy/kubernetes.yml``.

Tests handle it as a user would: with ``kubectl`` and ``heron``. Its disks are folders of this machine that all nodes
mount.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import yaml

from tests.support.clusters.commands import ROOT, ClusterCommands
from tests.support.clusters.kubernetes_nodes import CACHE, K8sNodes, run
from tests.support.waiting import wait_until

NAMESPACE = "heronry"
CLUSTER = "k8s/tests"
TAG = os.environ.get("HERONRY_TAG", "k8s-test")
IMAGES = {"heronry:latest": f"heronry:{TAG}", "heronry-zookeeper:latest": f"heronry-zookeeper:{TAG}"}
KINDS = "pods,secrets,configmaps,services,networkpolicies,poddisruptionbudgets"


class K8sCluster(ClusterCommands):
    """Heronry cluster, not started yet. ``port`` is that of ``heron``, on the network of the cluster."""

    address = CLUSTER
    namespace = NAMESPACE
    port = 9000

    def __init__(self, nodes: K8sNodes) -> None:
        self.nodes = nodes
        self.disks = nodes.folder / "disks"
        self.storage = self.disks / "shared"
        self._forward: subprocess.Popen[bytes] | None = None
        self.environment = {
            **os.environ,
            "HERONRY_TAG": TAG,
            "HERONRY_EXTRAS": "archive,kubernetes",
            "HERONRY_HOME": str(nodes.folder / f"home-{self.namespace}"),
        }

    def explain(self) -> str:
        """Return the state of the cluster, for a failed test."""
        said = self.kubectl("logs", "api-0", "--container", "api", "--tail", "60", check=False)
        return f"{said}\n{self.nodes.explain()}"

    def kubectl(self, *arguments: str, check: bool = True, stdin: str | None = None) -> str:
        """Return the output of ``kubectl`` in Heronry's namespace."""
        return self.nodes.kubectl("--namespace", self.namespace, *arguments, check=check, stdin=stdin)

    # Start.

    def up(self) -> None:
        """Load the images on the nodes, start the services, and log in."""
        run("deploy/build", "api", "zookeeper", cwd=ROOT, env=self.environment)
        for image in IMAGES.values():
            self.nodes.load(image)
        self.nodes.lap("the images are on the nodes")
        self._make_disks()
        manifests = list(yaml.safe_load_all((ROOT / "deploy" / "kubernetes.yml").read_text()))
        self.nodes.apply(*(one for one in manifests if one["kind"] == "Namespace"))
        self._make_certificate()
        self.nodes.apply(self._claim(), *(_on_the_first_node(_with_our_images(one)) for one in manifests))
        self.kubectl("patch", "statefulset", "api", "--patch", (ROOT / "deploy" / "kubernetes-storage.yml").read_text())
        for name in ("zookeeper", "api"):
            self.kubectl("rollout", "status", "statefulset", name, "--timeout=300s")
        self.nodes.lap("the services are ready")
        self.login()

    def _make_disks(self) -> None:
        """Create a volume for each claim on the node that never fails, in place of a provisioner."""
        claims = {"home": (10001, "ReadWriteOnce"), "data-zookeeper-0": (10002, "ReadWriteOnce"),
                  "shared": (10001, "ReadWriteMany")}  # fmt: skip
        self.disks.mkdir()
        for parent in (self.nodes.folder, self.disks):
            parent.chmod(0o755)
        for claim, (user, mode) in claims.items():
            self.make_disk(claim, user, mode)

    def make_disk(self, claim: str, user: int, mode: str) -> None:
        """Create a volume for this claim."""
        name = claim if self.namespace == NAMESPACE else f"{self.namespace}-{claim}"
        folder = self.disks / name
        folder.mkdir()
        os.chown(folder, user, user)
        spec: dict[str, Any] = {
            "capacity": {"storage": "20Gi"}, "accessModes": [mode], "hostPath": {"path": str(folder)},
            "claimRef": {"namespace": self.namespace, "name": claim}, "persistentVolumeReclaimPolicy": "Retain",
        }  # fmt: skip
        self.nodes.apply({"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name}, "spec": spec})

    def _claim(self) -> dict[str, Any]:
        return {
            "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "shared", "namespace": NAMESPACE},
            "spec": {"accessModes": ["ReadWriteMany"], "resources": {"requests": {"storage": "1Gi"}}},
        }  # fmt: skip

    def _make_certificate(self) -> None:
        """Create the certificate as docs/how-to/deploy/kubernetes.md says."""
        folder = self.nodes.folder / "zookeeper"
        folder.mkdir()
        run(
            "openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes",
            "-days", "3650", "-subj", "/CN=zookeeper",
            "-addext", "subjectAltName=DNS:zookeeper,DNS:zookeeper.heronry.svc,DNS:localhost",
            "-keyout", f"{folder}/key.pem", "-out", f"{folder}/zookeeper.pem",
        )  # fmt: skip
        both = (folder / "key.pem").read_text() + (folder / "zookeeper.pem").read_text()
        (folder / "server.pem").write_text(both)
        files = [f"--from-file={folder}/{name}" for name in ("server.pem", "zookeeper.pem")]
        self.kubectl("create", "secret", "generic", "zookeeper-tls", *files)

    def login(self) -> None:
        """Log in through kubectl, which forwards a port to one Pod of the Service for the Pod's lifetime."""
        wait_until(self._logged_in, "heron login works")

    def _logged_in(self) -> bool:
        self.hang_up()
        kubectl = (str(CACHE / "bin" / "kubectl"), "--kubeconfig", str(self.nodes.kubeconfig))
        forward = ("--namespace", self.namespace, "port-forward", "service/api", f"{self.port}:9000")
        self._forward = subprocess.Popen(
            ["nsenter", f"--net=/run/netns/{self.nodes.name}", *kubectl, *forward],
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        assert self._forward.stdout is not None
        if not self._forward.stdout.readline():  # it prints where it listens, or ends
            return False
        token = self.kubectl(
            "exec", "api-0", "--container", "api", "--", "cat", "/srv/heronry/admin-token", check=False
        )
        return self.try_heron("login", "k8s", "--api", f"http://127.0.0.1:{self.port}", stdin=token).returncode == 0

    def hang_up(self) -> None:
        """End the port forwarding."""
        if self._forward is not None:
            self._forward.kill()
            self._forward.communicate()
            self._forward = None

    # Commands.

    def run_here(self, *command: str, **arguments: Any) -> subprocess.CompletedProcess[str]:
        """Run a command where the cluster can be reached."""
        return self.nodes.inside(*command, **arguments)

    # State of Kubernetes.

    def pods(self, name: str) -> dict[int, dict[str, Any]]:
        """Return the Pods by container number."""
        found = self.nodes.objects("pods", "--namespace", self.namespace, "--selector", f"org.heronry.topology={name}")
        return {int(pod["metadata"]["labels"]["org.heronry.container"]): pod for pod in found}

    def strike(self, name: str, number: int) -> None:
        """Send SIGKILL to all processes of a container, from outside."""
        self.strike_pod(self.pods(name)[number], "heron")

    def strike_pod(self, pod: dict[str, Any], container: str) -> None:
        """Send SIGKILL to all processes in a container of any Pod."""
        (found,) = (one for one in pod["status"]["containerStatuses"] if one["name"] == container)
        node = int(pod["spec"]["nodeName"].removeprefix("node"))
        ident = found["containerID"].removeprefix("containerd://")
        self.nodes.ctr(node, "task", "kill", "--signal", "SIGKILL", "--all", ident)

    def restart_api_server(self) -> None:
        """Delete the Pod of Heronry's API server, and wait until another one answers."""
        self.kubectl("delete", "pod", "api-0", "--grace-period=1")
        self.kubectl("rollout", "status", "statefulset", "api", "--timeout=300s")
        self.login()

    def left(self, name: str) -> list[str]:
        """Return what is left of a topology: objects, and its folder on the shared storage."""
        ours = f"org.heronry.topology={name}"
        found = self.kubectl("get", KINDS, "--selector", ours, "--output", "name").split()
        return found + [folder.name for folder in self.folders(name)]

    def folders(self, name: str) -> list[Path]:
        """Return the folders of the topology on the shared storage."""
        return list(self.storage.glob(f"{self.namespace}_topology-{name.lower()}-*"))

    def kill(self, name: str) -> None:
        """Run ``heron kill``, and check that nothing is left."""
        self.heron("kill", CLUSTER, name)
        wait_until(lambda: not self.left(name), f"nothing is left of it: {self.left(name)}")

    def names(self) -> set[str]:
        """Return all objects in the namespace of kinds that the scheduler may create."""
        return set(self.kubectl("get", f"{KINDS},persistentvolumeclaims,jobs,replicasets", "--output", "name").split())

    def down(self) -> None:
        """Disconnect; the nodes end everything else."""
        self.hang_up()
        shutil.rmtree(self.environment["HERONRY_HOME"], ignore_errors=True)


def _on_the_first_node(manifest: dict[str, Any]) -> dict[str, Any]:
    """Place a service on the node that never fails."""
    if manifest["kind"] == "StatefulSet":
        manifest["spec"]["template"]["spec"]["nodeSelector"] = {"kubernetes.io/hostname": "node1"}
    return manifest


def _with_our_images(manifest: dict[str, Any]) -> dict[str, Any]:
    text = json.dumps(manifest)
    for given, ours in IMAGES.items():
        text = text.replace(f'"{given}"', f'"{ours}"')
    changed: dict[str, Any] = json.loads(text)
    return changed
