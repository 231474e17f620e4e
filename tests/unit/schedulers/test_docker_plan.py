"""Containers on a Docker engine: names, labels, limits and the request body."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from heron_control.schedulers import docker_plan as plan
from heron_runtime.launch import Launch
from heron_runtime.model.containers import LAST_STANDBY
from heron_runtime.model.ids import is_safe_name
from heron_runtime.model.plan import ContainerPlan, InstancePlan, PackingPlan, Resources
from heron_runtime.model.settings import MiB

NAMES = st.from_regex(r"[A-Za-z_][A-Za-z0-9_.\-]{0,127}", fullmatch=True).filter(is_safe_name)
IDS = st.text("0123456789abcdef", min_size=12, max_size=12)


def launch_named(name: str, digits: str = "0123456789ab") -> Launch:
    return Launch(
        "docker", "ads", "prod", name, f"{name}-{digits}", "zookeeper://zookeeper:2181/heronry", "/srv/x", "/run/x",
        package_digest="d" * 64, store_credential="/srv/heronry/store-credential",
    )  # fmt: skip


def changed(value: Any) -> Any:
    """Return another value of the same kind, for a field of a request body."""
    match value:
        case bool():
            return not value
        case int():
            return value + 7_000_000
        case str():
            return value + "x"
        case [str(), *_]:
            return [*value, "OTHER"]
        case [dict() as first, *_]:
            return [{**first, "Target": "/elsewhere"}]
        case {"Type": str()}:
            return {**value, "Type": "syslog"}
        case dict():
            return {f"{key}x": found for key, found in value.items()}
    raise AssertionError(value)


def packing(cpu: float, ram: int, tasks: int, task_ram: int) -> PackingPlan:
    instances = tuple(InstancePlan(n, "bolt", n - 1, Resources(0.5, task_ram)) for n in range(1, tasks + 1))
    return PackingPlan("T", (ContainerPlan(1, instances, Resources(cpu, ram)),))


@given(project=NAMES, name=NAMES, digits=IDS, number=st.integers(0, LAST_STANDBY))
def test_container_name_is_a_dns_label(project: str, name: str, digits: str, number: int) -> None:
    host = plan.container_host(project, launch_named(name, digits), number)
    assert re.fullmatch(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?", host)
    assert len(host) <= 63
    assert host.endswith(f"-{number}")


@given(name=NAMES, digits=IDS)
def test_compose_network_sorts_first(name: str, digits: str) -> None:
    """The engine publishes ports on the first network by name."""
    assert plan.shared_name("my-project", launch_named(name, digits)) > "my-project_cluster"


@given(name=NAMES, one=IDS, other=IDS)
def test_submissions_of_one_name_have_distinct_names(name: str, one: str, other: str) -> None:
    names = {plan.shared_name("heronry", launch_named(name, digits)) for digits in (one, other)}
    assert len(names) == len({one[-6:], other[-6:]})


@given(cpu=st.floats(0, 64), ram=st.integers(0, 1 << 34), tasks=st.integers(1, 20), cores=st.integers(1, 64))
def test_limits_leave_room_for_tasks_and_runtime(cpu: float, ram: int, tasks: int, cores: int) -> None:
    found = plan.limits(packing(cpu, ram, tasks, 100 * MiB), {}, 1, cores)
    assert found.ram_bytes >= max(ram, tasks * 100 * MiB + plan.OWN_RAM)
    assert 0 < found.cpu <= cores, "the engine refuses more cores than it has"
    stated = plan.limits(packing(cpu, ram, tasks, 100 * MiB), {"topology.container.ram": ram}, 1, cores)
    assert stated.ram_bytes == ram, "what the user states is the limit"


def test_standby_has_the_limits_of_container_0() -> None:
    for replicas in (1, 2, 3):
        config = {"topology.master.replicas": replicas}
        found = {plan.limits(packing(1, 1, 1, 1), config, number, 8) for number in (0, 100_001, 100_002)}
        assert found == {Resources(1.0, 512 * MiB)}


def test_container_is_confined_and_holds_no_secret() -> None:
    launch = plan.launch_inside(launch_named("T"), "http://api:9000")
    body = plan.creation("heronry", launch, 3, "heronry:latest", Resources(1.5, 512 * MiB))
    host: dict[str, Any] = body["HostConfig"]
    assert host["ReadonlyRootfs"]
    assert host["CapDrop"] == ["ALL"]
    assert host["SecurityOpt"] == ["no-new-privileges:true"]
    assert host["RestartPolicy"] == {"Name": "no"}, "Docker must not restart what the execution state does not know of"
    assert (host["Memory"], host["MemorySwap"], host["NanoCpus"]) == (512 * MiB, 512 * MiB, 1_500_000_000)
    assert host["Init"]
    assert host["LogConfig"]["Config"]["max-size"]
    assert host["CapAdd"] == ["KILL", "SETGID", "SETUID"], "to become another user, and to signal that one"
    assert body["User"] == "root", "until its first program has become another user"
    assert body["Cmd"][-2:] == ["--user", "heronry"]
    assert {name: label for name, label in body["Labels"].items() if label} == {
        "org.heronry.cluster": "heronry", "org.heronry.role": "ads", "org.heronry.environ": "prod",
        "org.heronry.topology": "T", "org.heronry.topology-id": "T-0123456789ab", "org.heronry.container": "3",
    }  # fmt: skip
    assert body["Labels"]["com.docker.compose.service"] == "", "compose must not take it for a service of its own"
    assert body["Env"] == ["HOME=/tmp"]
    assert not [mount for mount in host["Mounts"] if mount["Type"] != "volume"], "nothing of the machine is mounted"


def test_launch_in_a_container_names_only_inner_paths() -> None:
    launch = plan.launch_inside(launch_named("T"), "http://api:9000")
    own = plan.launch_of(launch, plan.container_host("heronry", launch, 2), 2)
    assert own.host == plan.container_host("heronry", launch, 2)
    assert own.bind_host == "0.0.0.0"
    for path in (own.home, own.runtime_dir, own.store_credential):
        assert path.startswith(plan.VOLUME_PATH)
    assert own.api_url == "http://api:9000"
    assert own.settings["heron.scheduler"] == "docker"
    assert own.settings["heron.user.code.user"] == "heronry-code", "whatever was given"
    assert (
        plan.launch_of(
            plan.launch_inside(replace(launch_named("T"), store_credential=""), ""), "host", 2
        ).store_credential
        == ""
    )
