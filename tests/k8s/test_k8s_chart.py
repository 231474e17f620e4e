"""The Helm chart renders the manifests, is valid for Kubernetes, and keeps two API servers of which one may die."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import kubernetes_validate
import pytest
import yaml

from tests.support.clusters.commands import ROOT, SETTINGS
from tests.support.clusters.kubernetes import CLUSTER, K8sCluster
from tests.support.clusters.kubernetes_chart import CHART, HELM, K8sPair, refusal, render
from tests.support.clusters.kubernetes_nodes import run
from tests.support.waiting import wait_until

VERSIONS = [f"1.{minor}" for minor in range(25, 38)]
WHOLE: dict[str, Any] = {  # all possible values
    "images": {"pullPolicy": "Always", "pullSecret": "registry"},
    "apiServers": 3, "project": "acme", "home": {"claim": "mine"}, "storage": {"claim": "shared"},
    "zookeeper": {"storageClass": "fast", "size": "1Gi"},
    "topologies": {"nodes": "disk=ssd,zone=a", "reach": "10.0.0.0/8"},
    "quota": {"cores": 8, "ramMb": 2000000, "containers": 40, "diskMb": 0.5}, "nodesRole": False,
    "serviceMonitor": {"enabled": True, "labels": {"release": "prometheus"}},
    "nodeSelector": {"disk": "ssd"}, "tolerations": [{"key": "services", "operator": "Exists"}],
}  # fmt: skip
ELSEWHERE = {
    "zookeeper": {"enabled": False}, "state": "zookeeper://zk-1:2181,zk-2:2181/heronry",
    "home": {"storageClass": "fast", "size": "2Gi"},
}  # fmt: skip


def named(objects: list[dict[str, Any]]) -> dict[tuple[str, str], dict[str, Any]]:
    found = {(made["kind"], made["metadata"]["name"]): made for made in objects}
    assert len(found) == len(objects)
    return found


def variables(objects: list[dict[str, Any]], container: int = 0) -> dict[str, str]:
    pod = named(objects)["StatefulSet", "api"]["spec"]["template"]["spec"]
    return {entry["name"]: entry.get("value", "") for entry in pod["containers"][container]["env"]}


def test_default_values_render_the_manifests() -> None:
    manifests = list(yaml.safe_load_all((ROOT / "deploy" / "kubernetes.yml").read_text()))
    assert named(render({})) == named([made for made in manifests if made["kind"] != "Namespace"])


def test_release_equals_the_version_of_heronry() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert f'\nversion = "{chart["version"]}"\n' in (ROOT / "pyproject.toml").read_text()
    run(HELM, "lint", "--strict", str(CHART))


@pytest.mark.parametrize("values", [WHOLE, ELSEWHERE, {"apiServers": 2}])
def test_every_object_is_valid_for_kubernetes(values: dict[str, Any]) -> None:
    made = render(values)
    for version in VERSIONS:
        for one in made:
            if one["kind"] != "ServiceMonitor":  # of an extension
                assert kubernetes_validate.validate(one, version, strict=True) == version


def test_values_appear_in_the_objects() -> None:
    whole = named(render(WHOLE))
    assert ("ClusterRole", "heronry-nodes") not in whole
    assert ("PersistentVolumeClaim", "home") not in whole
    said = variables(list(whole.values()))
    assert said["HERONRY_ELECT"] == "1"
    assert said["HERONRY_PROJECT"] == "acme"
    assert (said["HERONRY_K8S_NODES"], said["HERONRY_K8S_REACH"]) == ("disk=ssd,zone=a", "10.0.0.0/8")
    assert (said["HERONRY_K8S_CLAIM"], said["HERONRY_K8S_PULL_SECRET"]) == ("shared", "registry")
    bounds = {name: float(said[f"HERONRY_QUOTA_{name}"]) for name in ("CORES", "RAM_MB", "CONTAINERS", "DISK_MB")}
    assert bounds == {"CORES": 8, "RAM_MB": 2000000, "CONTAINERS": 40, "DISK_MB": 0.5}
    assert whole["Service", "api"]["spec"]["selector"] == {"app.kubernetes.io/name": "balancer"}
    for key in (("StatefulSet", "api"), ("StatefulSet", "zookeeper"), ("Deployment", "balancer")):
        pod = whole[key]["spec"]["template"]
        assert pod["metadata"]["labels"]["org.heronry.joins"] == "acme", key
        assert pod["spec"]["imagePullSecrets"] == [{"name": "registry"}], key
        assert pod["spec"]["nodeSelector"] == {"disk": "ssd"}, key
        assert pod["spec"]["tolerations"], key
    monitor, service = whole["ServiceMonitor", "tracker"], whole["Service", "tracker"]
    assert monitor["metadata"]["labels"] == {"release": "prometheus"}
    assert monitor["spec"]["selector"]["matchLabels"].items() <= service["metadata"]["labels"].items()
    assert monitor["spec"]["endpoints"][0]["port"] in {port["name"] for port in service["spec"]["ports"]}


@pytest.mark.parametrize(("mode", "elects"), [("", False), ("ReadWriteOnce", False), ("ReadWriteMany", True)])
def test_api_server_elects_only_with_a_shared_home(mode: str, elects: bool) -> None:
    """A server with a private home cannot start beside another, and Kubernetes never updates one that does not run."""
    assert ("HERONRY_ELECT" in variables(render({"home": {"accessMode": mode}}))) == elects


def test_existing_zookeeper_without_tls_needs_no_certificate() -> None:
    made = render(ELSEWHERE)
    assert not [one for one in made if one["metadata"]["name"] == "zookeeper"]
    assert "zookeeper-tls" not in str(made)
    assert {variables(made, number)["HERONRY_STATE"] for number in (0, 1)} == {ELSEWHERE["state"]}


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"apiServer": 2}, "'apiServer' not allowed"),
        ({"apiServers": 0}, "apiServers"),
        ({"zookeeper": {"enabled": False}}, "say where the state store is"),
        ({"apiServers": 2, "home": {"accessMode": "ReadWriteOnce"}}, "must be ReadWriteMany"),
        ({"state": "redis://r"}, "state"),
        ({"topologies": {"nodes": "ssd"}}, "nodes"),
    ],
)
def test_invalid_values_are_rejected(values: dict[str, Any], said: str) -> None:
    assert said in refusal(values)


@pytest.fixture(scope="module")
def pair(cluster: K8sCluster) -> Iterator[K8sPair]:
    made = K8sPair(cluster)
    try:
        made.up()
        made.nodes.lap("two api servers by the chart are ready")
        yield made
    finally:
        made.down()


def _submit(pair: K8sPair, name: str) -> None:
    settings = [f"--config-property={key}={value}" for key, value in SETTINGS.items()]
    file = str(ROOT / "tests" / "support" / "contracts" / "contract_topology.py")
    pair.heron("submit", CLUSTER, file, "Contract", "--name", name, "--wait-timeout", "240", *settings, "--", "{}")


def test_one_of_two_api_servers_leads_and_accepts_a_submit(pair: K8sPair) -> None:
    assert len(wait_until(pair.leaders, "one leads")) == 1
    _submit(pair, "Before")
    assert sorted(pair.pods("Before")) == [0, 1, 2]


def test_submit_completes_when_the_leader_is_killed(pair: K8sPair) -> None:
    before = {number: pod["metadata"]["uid"] for number, pod in pair.pods("Before").items()}
    (leader,) = wait_until(pair.leaders, "one leads")
    struck = time.monotonic()
    with ThreadPoolExecutor(1) as pool:
        under_way = pool.submit(_submit, pair, "Meanwhile")
        pair.strike_pod(pair.pod(leader), "api")
        wait_until(lambda: len(pair.leaders()) == 1, "one leads again")
        pair.nodes.lap(f"the leading api server was killed: one leads {time.monotonic() - struck:.1f} s later")
        under_way.result()
    pair.wait_until_it_runs("Meanwhile")
    pair.nodes.lap(f"what was submitted meanwhile runs {time.monotonic() - struck:.1f} s after it")
    assert {number: pod["metadata"]["uid"] for number, pod in pair.pods("Before").items()} == before


def test_other_api_server_leads_when_the_leaders_pod_is_deleted(pair: K8sPair) -> None:
    (leader,) = wait_until(pair.leaders, "one leads")
    (other,) = {"api-0", "api-1"} - {leader}
    struck = time.monotonic()
    pair.kubectl("delete", "pod", leader, "--wait=false")
    wait_until(lambda: pair.leaders() == [other], "the other leads")
    pair.nodes.lap(f"the leading api server's Pod was deleted: the other leads {time.monotonic() - struck:.1f} s later")
    before = pair.pods("Before")[1]["metadata"]["uid"]
    pair.strike("Before", 1)  # the new leader watches what it has adopted
    wait_until(
        lambda: pair.pods("Before").get(1, {"metadata": {"uid": before}})["metadata"]["uid"] != before, "another"
    )
    pair.wait_until_it_runs("Before")


def test_scaling_api_servers_down_and_up_leaves_no_topology_remains(pair: K8sPair) -> None:
    """This includes a scale-down just after the first server's Pod was deleted."""
    before = {number: pod["metadata"]["uid"] for number, pod in pair.pods("Before").items()}
    pair.kubectl("delete", "pod", "api-0", "--wait=false")
    pair.install({**pair.values(), "apiServers": 1, "home": {"accessMode": "ReadWriteMany"}})
    pair.login()
    pair.wait_until_it_runs("Before")
    pair.install(pair.values())
    assert len(wait_until(pair.leaders, "one leads")) == 1
    pair.login()
    pair.wait_until_it_runs("Before")
    assert {number: pod["metadata"]["uid"] for number, pod in pair.pods("Before").items()} == before
    for name in ("Before", "Meanwhile"):
        pair.heron("kill", CLUSTER, name)
        wait_until(lambda name=name: not pair.left(name), f"nothing is left of {name}")
