"""Kubernetes objects of a container: valid, and as hardened as on a Docker engine."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml
from hypothesis import given

from heron_control.schedulers import container_spec, kubernetes_objects
from heron_control.schedulers.container_spec import ContainerSpec
from heron_control.schedulers.identity import container_lock
from heron_control.schedulers.k8s import KubernetesOptions
from heron_control.schedulers.kubernetes_objects import PodPlacement, cores
from heron_control.schedulers.scheduler import SchedulerError
from heron_runtime.model.plan import Resources
from heron_runtime.model.settings import MiB
from tests.unit.schedulers.test_container_spec import IDS, NAMES, check_no_field_is_lost, launch_named, spec

ROOT = Path(__file__).resolve().parents[3]
VERSIONS = [f"1.{minor}" for minor in range(25, 38)]
FILES = {"launch.json": b"{}", "secret": b"s", "key.pem": b"k", "store-credential": b"c"}
PLACING = PodPlacement("heronry", (("disk", "ssd"),), "registry", ("10.0.0.0/8",), "shared")
LABELS = container_spec.owner_labels("heronry", launch_named("T"))


def pod(whole: ContainerSpec, takers: int = 2) -> dict[str, Any]:
    return kubernetes_objects.pod_of(whole, sorted(FILES), PLACING, takers)


def record(whole: ContainerSpec) -> dict[str, Any]:
    return kubernetes_objects.record_of(whole, FILES, PLACING, 2)


def translate(whole: ContainerSpec) -> object:
    return record(whole), kubernetes_objects.secret_of(whole, FILES, PLACING)


def objects() -> Iterator[dict[str, Any]]:
    """Yield all objects of a topology."""
    made = record(spec())
    yield made
    owner = {**made, "metadata": {**made["metadata"], "uid": "u1"}}
    yield kubernetes_objects.owned_by(owner, kubernetes_objects.pod_in(made))
    yield kubernetes_objects.owned_by(owner, pod(spec(0)))
    yield kubernetes_objects.owned_by(owner, kubernetes_objects.secret_of(spec(), FILES, PLACING))
    yield kubernetes_objects.service("heronry_topology-t", LABELS, "heronry")
    for internal in (True, False):
        yield kubernetes_objects.policy("heronry_topology-t", LABELS, PLACING, internal=internal)
    yield kubernetes_objects.disruption("heronry_topology-t", LABELS, "heronry", 4)


@pytest.mark.parametrize("version", VERSIONS)
def test_every_object_is_valid_for_kubernetes(version: str) -> None:
    manifest = yaml.safe_load_all((ROOT / "deploy" / "kubernetes.yml").read_text())
    for made in [*objects(), *manifest]:
        assert kubernetes_validate.validate(made, version, strict=True) == version


def test_schema_validation_is_strict() -> None:
    made = pod(spec())
    made["spec"]["containers"][0]["imagePullPolice"] = "Always"
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(made, VERSIONS[-1], strict=True)


def test_every_field_reaches_the_pod_or_has_a_reason() -> None:
    check_no_field_is_lost(translate, kubernetes_objects.UNSUPPORTED_FIELDS)


def test_pod_is_restricted() -> None:
    """Covers the "restricted" level of Pod security, and more."""
    shown = pod(spec())["spec"]
    assert shown["securityContext"]["runAsNonRoot"]
    assert shown["securityContext"]["runAsUser"] == 10001
    assert shown["securityContext"]["seccompProfile"]["type"] == "RuntimeDefault"
    assert not shown["automountServiceAccountToken"]
    for container in (*shown["containers"], *shown["initContainers"]):
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}, "readOnlyRootFilesystem": True,
        }  # fmt: skip
    assert not {"hostNetwork", "hostPID", "hostIPC"} & shown.keys()
    assert all(volume.keys() & {"emptyDir", "projected", "persistentVolumeClaim"} for volume in shown["volumes"])


def test_kubernetes_never_restarts_a_container() -> None:
    assert pod(spec())["spec"]["restartPolicy"] == "Never"


def test_secrets_are_only_in_the_secret_object() -> None:
    assert record(spec())["data"].keys() == {"launch.json", kubernetes_objects.POD_FILE}
    secret = kubernetes_objects.secret_of(spec(), FILES, PLACING)
    assert secret["data"].keys() == FILES.keys() - {"launch.json"}
    (given,) = (volume for volume in pod(spec())["spec"]["volumes"] if volume["name"] == "given")
    found = [
        item["key"] for source in given["projected"]["sources"] for one in source.values() for item in one["items"]
    ]
    assert sorted(found) == sorted(FILES)


def test_start_files_are_private_and_in_memory() -> None:
    """Secret files are not on a node's disk, and user code cannot see their source."""
    shown = pod(spec())["spec"]
    (copying,), (container,) = shown["initContainers"], shown["containers"]
    *_, command = copying["args"]
    assert command.endswith("install -m 0400 /given/* /var/lib/heronry/start/3/")
    mounted = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
    assert "given" not in mounted
    assert mounted["start"] == "/var/lib/heronry/start/3"
    (start,) = (volume for volume in shown["volumes"] if volume["name"] == "start")
    assert start["emptyDir"]["medium"] == "Memory"


def test_shared_storage_is_a_folder_of_the_topology() -> None:
    shown = pod(spec())["spec"]
    shared = {m["subPath"]: m["mountPath"] for m in shown["containers"][0]["volumeMounts"] if m["name"] == "shared"}
    volume = container_spec.shared_name("heronry", launch_named("T"))
    assert shared == {f"{volume}/{folder}": path for folder, path in container_spec.SHARED_MOUNTS.items()}
    assert f"mkdir -p {' '.join(shared.values())};" in shown["initContainers"][0]["args"][-1]
    assert {"name": "volume", "mountPath": container_spec.VOLUME_PATH} in shown["initContainers"][0]["volumeMounts"]


def test_requests_do_not_exceed_limits() -> None:
    for cpu in (0.01, 0.5, 1.5, 64.0):
        found = pod(spec(3, Resources(cpu, 512 * MiB)))["spec"]["containers"][0]["resources"]
        assert 0 < cores(found["requests"]["cpu"]) <= cores(found["limits"]["cpu"])
        assert found["requests"]["memory"] == found["limits"]["memory"] == str(512 * MiB)


def test_readiness_probe_checks_a_file_of_the_container() -> None:
    launch = container_spec.launch_inside(launch_named("T"), "", "k8s")
    locks = [(number, str(container_lock(launch.runtime_dir, number))) for number in (0, 100_001)]
    for number, file in (*locks, (3, launch.stream_manager_socket(3))):
        assert pod(spec(number))["spec"]["containers"][0]["readinessProbe"]["exec"]["command"] == ["test", "-e", file]


def test_pods_of_one_topology_prefer_distinct_hosts() -> None:
    terms = pod(spec())["spec"]["affinity"]["podAntiAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"]
    weights = {term["podAffinityTerm"]["topologyKey"]: term["weight"] for term in terms}
    assert weights["kubernetes.io/hostname"] > weights["topology.kubernetes.io/zone"] > 0
    for term in terms:
        wanted = term["podAffinityTerm"]["labelSelector"]["matchLabels"]
        assert wanted.items() <= pod(spec(0))["metadata"]["labels"].items()


def test_internal_topology_reaches_itself_services_and_dns() -> None:
    inside, outside = (
        kubernetes_objects.policy("n", LABELS, PLACING, internal=internal)["spec"] for internal in (True, False)
    )
    assert outside["egress"] == [{}]
    assert inside["ingress"] == outside["ingress"]
    peers, names = inside["egress"]
    assert names == {
        "to": [{
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "kube-system"}},
            "podSelector": {"matchLabels": {"k8s-app": "kube-dns"}},
        }],
        "ports": [{"protocol": "UDP", "port": 53}, {"protocol": "TCP", "port": 53}],
    }  # fmt: skip
    assert [peer for peer in peers["to"] if "ipBlock" in peer] == [{"ipBlock": {"cidr": "10.0.0.0/8"}}]
    assert inside["ingress"] == [{"from": [peer for peer in peers["to"] if "ipBlock" not in peer]}]


def test_name_servers_are_set_by_the_operator() -> None:
    options = KubernetesOptions.of_environment(
        {"HERONRY_K8S_DNS": "openshift-dns/dns.operator.openshift.io/daemonset-dns=default, 169.254.20.10/32"}
    )
    _, names = kubernetes_objects.policy("n", LABELS, options.placing, internal=True)["spec"]["egress"]
    assert names["to"] == [
        {
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "openshift-dns"}},
            "podSelector": {"matchLabels": {"dns.operator.openshift.io/daemonset-dns": "default"}},
        },
        {"ipBlock": {"cidr": "169.254.20.10/32"}},
    ]
    with pytest.raises(SchedulerError, match="HERONRY_K8S_DNS: 'kube-dns' is not NAMESPACE/LABEL=VALUE"):
        KubernetesOptions.of_environment({"HERONRY_K8S_DNS": "kube-dns"})


def test_disruption_budget_allows_one_pod_at_a_time() -> None:
    for count in (1, 2, 7):
        assert kubernetes_objects.disruption("n", LABELS, "heronry", count)["spec"]["minAvailable"] == count - 1


@given(name=NAMES, other=NAMES)
def test_names_and_labels_are_valid_and_distinct(name: str, other: str) -> None:
    for make, form in (
        (kubernetes_objects.object_name, r"[a-z]([a-z0-9-]{0,61}[a-z0-9])?"),
        (kubernetes_objects.label_value, r"([A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?)?"),
    ):
        assert re.fullmatch(form, make(name))
    assert (kubernetes_objects.label_value(name) == kubernetes_objects.label_value(other)) == (name == other)


@given(name=NAMES, one=IDS, two=IDS)
def test_submissions_never_share_a_network(name: str, one: str, two: str) -> None:
    names = {
        kubernetes_objects.object_name(container_spec.shared_name("heronry", launch_named(name, d))) for d in (one, two)
    }
    assert len(names) == len({one[-6:], two[-6:]})
