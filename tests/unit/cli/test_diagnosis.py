"""What ``heron doctor ENGINE`` concludes from facts, as laws and examples.

Real engines: ``tests/docker/test_docker_doctor.py``, ``tests/slurm/test_slurm_doctor.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml
from hypothesis import given
from hypothesis import strategies as st

from heron_cli.diagnosis import judge_k8s
from heron_cli.diagnosis.findings import Finding, Health, missing, optional
from heron_cli.diagnosis.judge_docker import (
    DockerFacts,
    Node,
    Storage,
    compose_findings,
    docker_findings,
    swarm_findings,
)
from heron_cli.diagnosis.judge_k8s import Claim, K8sFacts, k8s_findings
from heron_cli.diagnosis.judge_slurm import Place, SlurmFacts, slurm_findings
from heron_cli.diagnosis.judge_spark import SparkFacts, spark_findings
from heron_control.schedulers.slurm_client import SiteNode

ROOT = Path(__file__).resolve().parents[3]
INFO = {
    "ServerVersion": "20.10.24+dfsg1", "OSType": "linux", "MemoryLimit": True, "CpuCfsQuota": True, "PidsLimit": True,
    "CgroupVersion": "2", "Plugins": {"Network": ["bridge", "overlay"]}, "DockerRootDir": "/var/lib/docker",
    "Swarm": {"LocalNodeState": "active", "ControlAvailable": True},
}  # fmt: skip
READY = (Node("m", "ready", "active", "20.10.24"), Node("w", "ready", "active", "24.0.7", reached=True))
DOCKER = DockerFacts(
    INFO, has_image=True, compose="2.26.1", buildx="0.13", networks=3, free_bytes=1 << 36, nodes=READY,
    storage=Storage("/mnt/heronry", network="NFS"), image="heronry@sha256:0",
)  # fmt: skip
SLURM = SlurmFacts(
    commands=("sbatch", "srun"), version="slurm-wlm 22.05.8", tracking="proctrack/cgroup", store="zookeeper",
    nodes=(SiteNode("n1", "h1", "idle", "batch"), SiteNode("n2", "h2", "mixed", "batch")), elsewhere=("h1", "h2"),
    places=(Place("home", "/nfs/home", "NFS"),),
)  # fmt: skip
IMAGES = [{"names": ["docker.io/library/heronry:latest"]}]
NODE = {
    "metadata": {"name": "n1"}, "spec": {},
    "status": {"conditions": [{"type": "Ready", "status": "True"}], "images": IMAGES},
}  # fmt: skip
CLASS = {"metadata": {"name": "fast", "annotations": {judge_k8s.DEFAULT_CLASS: "true"}}}
K8S = K8sFacts(
    version="v1.30.1", policy="v1", nodes=(NODE,), classes=(CLASS,), claim=Claim("shared", ("ReadWriteMany",)),
    rights=dict.fromkeys(judge_k8s.SCHEDULER_RIGHTS + judge_k8s.OPERATOR_RIGHTS, True),
)  # fmt: skip
SPARK = SparkFacts(
    "/usr/bin/java", 17, "", {"pyspark": "4.0.1", "pyarrow": "17.0.0", "pandas": "2.2.3"}, "/tmp", 1 << 36
)
WHOLE: tuple[tuple[Callable[[Any], Iterable[Finding]], Any], ...] = (
    (docker_findings, DOCKER), (compose_findings, DOCKER), (swarm_findings, DOCKER), (slurm_findings, SLURM),
    (k8s_findings, K8S), (spark_findings, SPARK),
)  # fmt: skip
TAINTED = {**NODE, "metadata": {"name": "n2"}, "spec": {"taints": [{"effect": "NoSchedule"}]}}


def info(**changed: Any) -> dict[str, Any]:
    """Facts of another ``docker info``."""
    return {"info": {**INFO, **changed}}


def other(**changed: Any) -> Node:
    """The second node of the swarm."""
    return replace(READY[1], **changed)


#: What is changed of the whole facts; the check, its verdict, words of what was found, words of the cure.
Case = tuple[dict[str, Any], str, str, str, str]
CASES: tuple[tuple[Callable[[Any], Iterable[Finding]], Any, tuple[Case, ...]], ...] = (
    (docker_findings, DOCKER, (
        (info(ServerVersion="19.03.1"), "Docker", "bad", "19.03.1 is too old", "20.10"),
        (info(OSType="windows"), "Docker", "bad", "windows", "Linux"),
        ({"has_image": False}, "image", "bad", "not on the engine", "make image"),
        (info(MemoryLimit=False), "limits", "note", "memory", "cgroup"),
        ({"free_bytes": 1 << 20}, "disk of the engine", "bad", "0.0 GiB", "docker system df"),
        ({"free_bytes": 3 << 30}, "disk of the engine", "note", "3.0 GiB", "prune"),
        ({"networks": 29}, "networks", "note", "29", "docker network prune"),
    )),
    (compose_findings, DOCKER, (
        ({"has_image": False}, "image", "note", "not on the engine", "make up"),
        ({"compose": ""}, "Compose", "bad", "none", "deploy/docker-setup"),
        ({"compose": "1.29.2"}, "Compose", "bad", "too old", "v2"),
        ({"buildx": ""}, "buildx", "bad", "none", "buildx-plugin"),
        ({"taken": (9000,)}, "ports", "bad", "9000", "HERONRY_API_PORT"),
    )),
    (swarm_findings, DOCKER, (
        (info(Swarm={"LocalNodeState": "inactive"}), "Docker Swarm", "bad", "none", "docker swarm init"),
        (info(Swarm={"LocalNodeState": "active"}), "Docker Swarm", "bad", "worker", "promote"),
        (info(Swarm={"LocalNodeState": "locked"}), "Docker Swarm", "bad", "locked", "unlock"),
        (info(Plugins={"Network": ["bridge"]}), "overlay networks", "bad", "driver", "vxlan"),
        ({"nodes": (replace(READY[0], availability="drain"),)}, "nodes", "bad", "0 of 1", "--availability active"),
        ({"nodes": (READY[0], other(status="down"))}, "nodes", "note", "w is down", "docker node"),
        ({"nodes": (READY[0], other(reached=False))}, "ports of nodes", "bad", "w", "7946"),
        ({"nodes": (READY[0], other(engine="19.03"))}, "engines of nodes", "bad", "w (19.03)", "20.10"),
        ({"image": "heronry:latest"}, "image on nodes", "note", "1 more", "docker load"),
        ({"storage": None}, "shared storage", "note", "EFFECTIVELY_ONCE", "HERONRY_SWARM_STORAGE"),
        ({"storage": Storage("/x", "No such file or directory")}, "shared storage", "bad", "/x", "Mount"),
        ({"storage": Storage("/x")}, "shared storage", "note", "of this machine", "NFS"),
    )),
    (slurm_findings, SLURM, (
        ({"lacking": ("srun",)}, "Slurm", "bad", "no srun", "slurm-client"),
        ({"lacking": ("sbatch", "srun")}, "Slurm", "bad", "there is none", "slurm-client"),
        ({"tracking": "proctrack/pgid"}, "process tracking", "note", "pgid", "ProctrackType"),
        ({"partition": "gpu"}, "nodes", "bad", "no partition gpu, but batch", "heron.slurm.partition"),
        ({"nodes": (SiteNode("n1", "h1", "down*", "b"),)}, "nodes", "bad", "n1 is down*", "sinfo -R"),
        (
            {"nodes": (*SLURM.nodes, SiteNode("n3", "h3", "drained", "b"))},
            "nodes", "note", "1 of 3 idle; n3 is drained", "State=RESUME",
        ),
        ({"nodes": SLURM.nodes[1:]}, "nodes", "note", "a job waits", "--no-wait"),
        ({"refused": "sbatch: Invalid account"}, "queue", "note", "Invalid account", "account"),
        ({"store": "files"}, "store for nodes", "bad", "h1, h2", "zookeeper://"),
        ({"places": (Place("home", "/root", ""),)}, "shared home", "note", "/root", "srun -N2"),
    )),
    (k8s_findings, K8S, (
        ({"version": "v1.19.3"}, "Kubernetes", "bad", "too old", "1.20"),
        ({"nodes": None}, "Kubernetes", "note", "not ours to see", "list nodes"),
        ({"nodes": ({**NODE, "spec": {"unschedulable": True}},)}, "nodes", "bad", "0 of 1", "uncordon"),
        ({"nodes": (NODE, TAINTED)}, "nodes", "note", "not n2", "uncordon"),
        ({"image": "other:1"}, "image", "note", "not known to be on n1", "ctr -n k8s.io"),
        ({"rights": {}}, "rights of the scheduler", "bad", "get pods", "kubectl apply"),
        (
            {"rights": dict.fromkeys(judge_k8s.SCHEDULER_RIGHTS, True)},
            "rights to set up", "bad", "create namespaces", "administrator",
        ),
        ({"classes": ()}, "volumes", "note", "no storage class", "provisioner"),
        ({"claim": None}, "shared storage", "note", "EFFECTIVELY_ONCE", "kubernetes-storage.yml"),
        ({"claim": Claim("c", None)}, "shared storage", "bad", "no claim c", "get pvc"),
        ({"claim": Claim("c", ("ReadWriteOnce",))}, "shared storage", "bad", "one node alone", "ReadWriteMany"),
        ({"kubectl": False}, "kubectl", "note", "there is none", "https://"),
    )),
    (spark_findings, SPARK, (
        ({"java": ""}, "Java", "bad", "there is none", "17"),
        ({"version": 11}, "Java", "bad", "version 11", "JAVA_HOME"),
        ({"packages": {"pyspark": "", "pandas": "2.2"}}, "PySpark", "bad", "not installed: pyspark", "heronry[spark]"),
        ({"packages": {"pyspark": "3.5.1"}}, "PySpark", "bad", "too old", "heronry[spark]"),
        ({"packages": {"pyspark": "4.0.0", "pandas": "3.0.1"}}, "PySpark", "bad", "pandas", "heronry[spark]"),
        ({"free_bytes": None}, "disk of Spark", "bad", "cannot be written", "SPARK_LOCAL_DIRS"),
        ({"free_bytes": 5}, "disk of Spark", "note", "0.0 GiB", "SPARK_LOCAL_DIRS"),
    )),
)  # fmt: skip


def every_case() -> Iterator[tuple[str, list[Finding]]]:
    for judge, whole, cases in CASES:
        for change, check, *_ in cases:
            yield check, list(judge(replace(whole, **change)))


def test_where_all_is_there_nothing_is_said_to_be_missing() -> None:
    for judge, whole in WHOLE:
        assert {finding.verdict for finding in judge(whole)} == {Health.GOOD}, judge


def test_each_lack_is_named_with_its_cure() -> None:
    for judge, whole, cases in CASES:
        for change, check, verdict, found, cure in cases:
            findings = judge(replace(whole, **change))
            said = [one for one in findings if one.check == check and one.verdict.value == verdict]
            assert len(said) == 1, (check, change)
            assert found in said[0].found, (check, change)
            assert cure in said[0].cure, (check, change)


def test_whatever_is_not_good_has_a_cure_and_what_is_good_needs_none() -> None:
    for check, found in every_case():
        for finding in found:
            assert bool(finding.cure) == (finding.verdict is not Health.GOOD), (check, finding)


def test_an_engine_that_does_not_answer_is_the_only_thing_missing() -> None:
    for judge, whole in WHOLE[:5]:
        silent = list(judge(replace(whole, trouble="`docker info` does not answer within 10 s")))
        assert len(missing(silent)) == 1
        assert "does not answer" in next(one.found for one in silent if one.verdict is Health.BAD)


def test_the_rights_are_those_of_the_manifest() -> None:
    bodies = list(yaml.safe_load_all((ROOT / "deploy" / "kubernetes.yml").read_text()))
    role = next(body for body in bodies if body["kind"] == "Role")
    given = {
        (verb, resource, group)
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }
    assert {(r.verb, r.resource, r.group) for r in judge_k8s.SCHEDULER_RIGHTS} == given
    applied = {f"{body['kind'].lower()}s" for body in bodies} | {"pods/exec", "pods/portforward"}
    asked = judge_k8s.OPERATOR_RIGHTS + judge_k8s.SCHEDULER_RIGHTS
    assert applied <= {right.resource for right in asked if right.verb == "create"}


@given(st.sampled_from(Health), st.text(), st.text(min_size=1))
def test_what_is_optional_is_never_missing(verdict: Health, found: str, cure: str) -> None:
    finding = Finding("check", verdict, found, cure)
    said = optional(finding, "a Spark job")
    assert missing([said]) == []
    assert said.found == found
    assert (said == finding) == (verdict is not Health.BAD)
