"""Conclusions of ``heron doctor`` from given facts, its checks by name, and bounded waiting.

Real engines: ``tests/docker/test_docker_doctor.py``, ``tests/slurm/test_slurm_doctor.py``.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from heron_cli.diagnosis import checks, kubernetes
from heron_cli.diagnosis.checks import examine
from heron_cli.diagnosis.docker import (
    DockerFacts,
    SwarmNodeFacts,
    SwarmStorage,
    judge_compose,
    judge_docker,
    judge_swarm,
)
from heron_cli.diagnosis.findings import CheckStatus, Finding, bad, good, missing, optional, shorten, version_numbers
from heron_cli.diagnosis.kubernetes import KubernetesFacts, VolumeClaim, judge_kubernetes
from heron_cli.diagnosis.probe import run_check, run_command
from heron_cli.diagnosis.slurm import SharedFolder, SlurmFacts, judge_slurm
from heron_cli.diagnosis.spark import SparkFacts, judge_spark
from heron_cli.home import Home, SavedLogin, write_credentials
from heron_control.schedulers.slurm import SiteNode
from heron_runtime.failures import NotFound

ROOT = Path(__file__).resolve().parents[3]
INFO = {
    "ServerVersion": "20.10.24+dfsg1", "OSType": "linux", "MemoryLimit": True, "CpuCfsQuota": True, "PidsLimit": True,
    "CgroupVersion": "2", "Plugins": {"Network": ["bridge", "overlay"]}, "DockerRootDir": "/var/lib/docker",
    "Swarm": {"LocalNodeState": "active", "ControlAvailable": True},
}  # fmt: skip
READY = (
    SwarmNodeFacts("m", "ready", "active", "20.10.24"),
    SwarmNodeFacts("w", "ready", "active", "24.0.7", reached=True),
)
DOCKER = DockerFacts(
    INFO, has_image=True, compose="2.26.1", buildx="0.13", networks=3, free_bytes=1 << 36, nodes=READY,
    storage=SwarmStorage("/mnt/heronry", network="NFS"), image="heronry@sha256:0",
)  # fmt: skip
SLURM = SlurmFacts(
    commands=("sbatch", "srun"), version="slurm-wlm 22.05.8", tracking="proctrack/cgroup", store="zookeeper",
    nodes=(SiteNode("n1", "h1", "idle", "batch"), SiteNode("n2", "h2", "mixed", "batch")), elsewhere=("h1", "h2"),
    shared_folders=(SharedFolder("home", "/nfs/home", "NFS"),),
)  # fmt: skip
IMAGES = [{"names": ["docker.io/library/heronry:latest"]}]
NODE = {
    "metadata": {"name": "n1"}, "spec": {},
    "status": {"conditions": [{"type": "Ready", "status": "True"}], "images": IMAGES},
}  # fmt: skip
CLASS = {"metadata": {"name": "fast", "annotations": {kubernetes.DEFAULT_CLASS: "true"}}}
K8S = KubernetesFacts(
    version="v1.30.1", policy="v1", nodes=(NODE,), classes=(CLASS,), claim=VolumeClaim("shared", ("ReadWriteMany",)),
    rights=dict.fromkeys(kubernetes.SCHEDULER_RIGHTS + kubernetes.OPERATOR_RIGHTS, True),
)  # fmt: skip
SPARK = SparkFacts(
    "/usr/bin/java", 17, "", {"pyspark": "4.0.1", "pyarrow": "17.0.0", "pandas": "2.2.3"}, "/tmp", 1 << 36
)
WHOLE: tuple[tuple[Callable[[Any], Iterable[Finding]], Any], ...] = (
    (judge_docker, DOCKER), (judge_compose, DOCKER), (judge_swarm, DOCKER), (judge_slurm, SLURM),
    (judge_kubernetes, K8S), (judge_spark, SPARK),
)  # fmt: skip
TAINTED = {**NODE, "metadata": {"name": "n2"}, "spec": {"taints": [{"effect": "NoSchedule"}]}}


def info(**changed: Any) -> dict[str, Any]:
    """Return the change to another ``docker info``."""
    return {"info": {**INFO, **changed}}


def other(**changed: Any) -> SwarmNodeFacts:
    """Return the change to the second node of the swarm."""
    return replace(READY[1], **changed)


# Change of the facts; check, verdict, words of the finding, words of the remedy.
Case = tuple[dict[str, Any], str, str, str, str]
CASES: tuple[tuple[Callable[[Any], Iterable[Finding]], Any, tuple[Case, ...]], ...] = (
    (judge_docker, DOCKER, (
        (info(ServerVersion="19.03.1"), "Docker", "bad", "19.03.1 is too old", "20.10"),
        (info(OSType="windows"), "Docker", "bad", "windows", "Linux"),
        ({"has_image": False}, "image", "bad", "not on the engine", "make image"),
        (info(MemoryLimit=False), "limits", "note", "memory", "cgroup"),
        ({"free_bytes": 1 << 20}, "disk of the engine", "bad", "0.0 GiB", "docker system df"),
        ({"free_bytes": 3 << 30}, "disk of the engine", "note", "3.0 GiB", "prune"),
        ({"networks": 29}, "networks", "note", "29", "docker network prune"),
    )),
    (judge_compose, DOCKER, (
        ({"has_image": False}, "image", "note", "not on the engine", "make up"),
        ({"compose": ""}, "Compose", "bad", "not installed", "deploy/docker-setup"),
        ({"compose": "1.29.2"}, "Compose", "bad", "too old", "v2"),
        ({"buildx": ""}, "buildx", "bad", "not installed", "buildx-plugin"),
        ({"taken": (9000,)}, "ports", "bad", "9000", "HERONRY_API_PORT"),
    )),
    (judge_swarm, DOCKER, (
        (info(Swarm={"LocalNodeState": "inactive"}), "Docker Swarm", "bad", "not in a swarm", "docker swarm init"),
        (info(Swarm={"LocalNodeState": "active"}), "Docker Swarm", "bad", "worker", "promote"),
        (info(Swarm={"LocalNodeState": "locked"}), "Docker Swarm", "bad", "locked", "unlock"),
        (info(Plugins={"Network": ["bridge"]}), "overlay networks", "bad", "driver", "vxlan"),
        ({"nodes": (replace(READY[0], availability="drain"),)}, "nodes", "bad", "0 of 1", "--availability active"),
        ({"nodes": (READY[0], other(status="down"))}, "nodes", "note", "w is down", "docker node"),
        ({"nodes": (READY[0], other(reached=False))}, "ports of nodes", "bad", "w", "7946"),
        ({"nodes": (READY[0], other(engine="19.03"))}, "engines of nodes", "bad", "w (19.03)", "20.10"),
        ({"image": "heronry:latest"}, "image on nodes", "note", "1 more", "docker load"),
        ({"storage": None}, "shared storage", "note", "EFFECTIVELY_ONCE", "HERONRY_SWARM_STORAGE"),
        ({"storage": SwarmStorage("/x", "No such file or directory")}, "shared storage", "bad", "/x", "Mount"),
        ({"storage": SwarmStorage("/x")}, "shared storage", "note", "of this machine", "NFS"),
    )),
    (judge_slurm, SLURM, (
        ({"missing_commands": ("srun",)}, "Slurm", "bad", "not found: srun", "slurm-client"),
        ({"missing_commands": ("sbatch", "srun")}, "Slurm", "bad", "not installed", "slurm-client"),
        ({"tracking": "proctrack/pgid"}, "process tracking", "note", "pgid", "ProctrackType"),
        ({"partition": "gpu"}, "nodes", "bad", "unknown partition gpu; known: batch", "heron.slurm.partition"),
        ({"nodes": (SiteNode("n1", "h1", "down*", "b"),)}, "nodes", "bad", "n1 is down*", "sinfo -R"),
        (
            {"nodes": (*SLURM.nodes, SiteNode("n3", "h3", "drained", "b"))},
            "nodes", "note", "1 of 3 idle; n3 is drained", "State=RESUME",
        ),
        ({"nodes": SLURM.nodes[1:]}, "nodes", "note", "a job waits", "--no-wait"),
        ({"refused": "sbatch: Invalid account"}, "queue", "note", "Invalid account", "account"),
        ({"store": "files"}, "store for nodes", "bad", "h1, h2", "zookeeper://"),
        ({"shared_folders": (SharedFolder("home", "/root", ""),)}, "shared home", "note", "/root", "srun -N2"),
    )),
    (judge_kubernetes, K8S, (
        ({"version": "v1.19.3"}, "Kubernetes", "bad", "too old", "1.20"),
        ({"nodes": None}, "Kubernetes", "note", "no permission to list nodes", "list nodes"),
        ({"nodes": ({**NODE, "spec": {"unschedulable": True}},)}, "nodes", "bad", "0 of 1", "uncordon"),
        ({"nodes": (NODE, TAINTED)}, "nodes", "note", "not n2", "uncordon"),
        ({"image": "other:1"}, "image", "note", "not reported by n1", "ctr -n k8s.io"),
        ({"rights": {}}, "rights of the scheduler", "bad", "get pods", "kubectl apply"),
        (
            {"rights": dict.fromkeys(kubernetes.SCHEDULER_RIGHTS, True)},
            "rights to set up", "bad", "create namespaces", "administrator",
        ),
        ({"classes": ()}, "volumes", "note", "no default storage class", "provisioner"),
        ({"claim": None}, "shared storage", "note", "EFFECTIVELY_ONCE", "kubernetes-storage.yml"),
        ({"claim": VolumeClaim("c", None)}, "shared storage", "bad", "claim c does not exist", "get pvc"),
        ({"claim": VolumeClaim("c", ("ReadWriteOnce",))}, "shared storage", "bad", "only one node", "ReadWriteMany"),
        ({"kubectl": False}, "kubectl", "note", "not installed", "https://"),
    )),
    (judge_spark, SPARK, (
        ({"java": ""}, "Java", "bad", "not installed", "17"),
        ({"version": 11}, "Java", "bad", "version 11", "JAVA_HOME"),
        ({"packages": {"pyspark": "", "pandas": "2.2"}}, "PySpark", "bad", "not installed: pyspark", "heronry[spark]"),
        ({"packages": {"pyspark": "3.5.1"}}, "PySpark", "bad", "too old", "heronry[spark]"),
        ({"packages": {"pyspark": "4.0.0", "pandas": "3.0.1"}}, "PySpark", "bad", "pandas", "heronry[spark]"),
        ({"free_bytes": None}, "disk of Spark", "bad", "is not writable", "SPARK_LOCAL_DIRS"),
        ({"free_bytes": 5}, "disk of Spark", "note", "0.0 GiB", "SPARK_LOCAL_DIRS"),
    )),
)  # fmt: skip


def every_case() -> Iterator[tuple[str, list[Finding]]]:
    for judge, whole, cases in CASES:
        for change, check, *_ in cases:
            yield check, list(judge(replace(whole, **change)))


def test_complete_facts_yield_only_good_findings() -> None:
    for judge, whole in WHOLE:
        assert {finding.verdict for finding in judge(whole)} == {CheckStatus.GOOD}, judge


def test_each_deficit_is_named_with_its_remedy() -> None:
    for judge, whole, cases in CASES:
        for change, check, verdict, found, cure in cases:
            findings = judge(replace(whole, **change))
            said = [one for one in findings if one.check == check and one.verdict.value == verdict]
            assert len(said) == 1, (check, change)
            assert found in said[0].found, (check, change)
            assert cure in said[0].cure, (check, change)


def test_exactly_the_findings_that_are_not_good_have_a_remedy() -> None:
    for check, found in every_case():
        for finding in found:
            assert bool(finding.cure) == (finding.verdict is not CheckStatus.GOOD), (check, finding)


def test_unresponsive_engine_is_the_only_deficit() -> None:
    for judge, whole in WHOLE[:5]:
        silent = list(judge(replace(whole, trouble="`docker info` does not answer within 10 s")))
        assert len(missing(silent)) == 1
        assert "does not answer" in next(one.found for one in silent if one.verdict is CheckStatus.BAD)


def test_checked_rights_are_those_of_the_manifest() -> None:
    bodies = list(yaml.safe_load_all((ROOT / "deploy" / "kubernetes.yml").read_text()))
    role = next(body for body in bodies if body["kind"] == "Role")
    given = {
        (verb, resource, group)
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }
    assert {(r.verb, r.resource, r.group) for r in kubernetes.SCHEDULER_RIGHTS} == given
    applied = {f"{body['kind'].lower()}s" for body in bodies} | {"pods/exec", "pods/portforward"}
    asked = kubernetes.OPERATOR_RIGHTS + kubernetes.SCHEDULER_RIGHTS
    assert applied <= {right.resource for right in asked if right.verb == "create"}


@given(st.sampled_from(CheckStatus), st.text(), st.text(min_size=1))
def test_optional_finding_is_never_missing(verdict: CheckStatus, found: str, cure: str) -> None:
    finding = Finding("check", verdict, found, cure)
    said = optional(finding, "a Spark job")
    assert missing([said]) == []
    assert said.found == found
    assert (said == finding) == (verdict is not CheckStatus.BAD)


def test_version_numbers_and_lists_are_formatted() -> None:
    assert version_numbers("v1.20.2") == (1, 20, 2)
    assert version_numbers("20.10.24+dfsg1") == (20, 10, 24)
    assert version_numbers("unknown") == ()
    assert shorten(["a", "b", "c"], 2) == "a, b and 1 more"


def test_hanging_check_is_named_and_abandoned() -> None:
    release = threading.Event()

    def hang() -> list[Finding]:
        release.wait()
        return []

    try:
        (finding,) = run_check("Docker", hang, 0.05)
        assert (finding.check, finding.verdict) == ("Docker", CheckStatus.BAD)
        assert "no answer within 0.05 s" in finding.found
    finally:
        release.set()
    assert run_command(["sleep", "60"], 0.05).trouble == "`sleep 60` does not answer within 0.05 s"
    assert run_command(["no-such-command"]).trouble == "command not found: no-such-command"
    assert run_command(["ls", "/no/such/file"]).trouble.endswith("No such file or directory")


def test_failing_check_is_a_finding() -> None:
    def fall() -> list[Finding]:
        raise PermissionError(13, "Permission denied", "/srv")

    assert run_check("home", fall)[0].found == "/srv: Permission denied"
    assert run_check("home", lambda: [bad("x", "y", "z")]) == [bad("x", "y", "z")]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Home:
    """Return a home whose engines are not contacted."""
    judged = {name: ((name, lambda _, name=name: [good(f"engine {name}", "")]),) for name in checks.ENGINES}
    monkeypatch.setattr(checks, "ENGINES", judged)
    monkeypatch.setattr(checks.machine, "check_cluster", lambda name, login: good(f"cluster {name}", login.api))
    return Home(tmp_path / "home")


def names_of_checks(home: Home, name: str) -> list[str]:
    return [finding.check for finding in examine(home, name)][4:]  # after Python, packages, home and disk


def test_engine_is_checked_at_its_cluster(home: Home) -> None:
    assert names_of_checks(home, "slurm") == ["engine slurm"]
    here, there = "http://127.0.0.1:9000", "https://heron.example.org"
    targets = {"docker": (here, "docker"), "k8s": (there, "k8s"), "prod": (here, "swarm")}
    logins = {name: SavedLogin(api, engine, "t") for name, (api, engine) in targets.items()}
    write_credentials(home, {**logins, "own": SavedLogin(here, "plugged-in", "t")})
    assert names_of_checks(home, "docker") == ["cluster docker", "engine docker"]
    assert names_of_checks(home, "prod") == ["cluster prod", "engine swarm"]
    assert names_of_checks(home, "own") == ["cluster own"]
    assert names_of_checks(home, "k8s") == ["cluster k8s", "k8s"]
    (elsewhere,) = [finding for finding in examine(home, "k8s") if finding.check == "k8s"]
    assert elsewhere.verdict is CheckStatus.NOTE
    assert "heron.example.org" in elsewhere.found
    with pytest.raises(NotFound, match=r"unknown engine or cluster 'swrm'; did you mean 'swarm'"):
        examine(home, "swrm")
