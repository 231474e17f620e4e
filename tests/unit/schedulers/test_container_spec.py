"""Description of a container: names, labels, limits and hardening."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields, is_dataclass, replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from heron_control.schedulers import container_spec
from heron_control.schedulers.container_spec import ContainerSpec, ProcessUser, TmpfsMount
from heron_runtime.launch import Launch
from heron_runtime.model.containers import LAST_STANDBY
from heron_runtime.model.ids import is_safe_name
from heron_runtime.model.plan import ContainerPlan, InstancePlan, PackingPlan, Resources
from heron_runtime.model.settings import MiB

LIMITS = Resources(1.5, 512 * MiB)
NAMES = st.from_regex(r"[A-Za-z_][A-Za-z0-9_.\-]{0,127}", fullmatch=True).filter(is_safe_name)
IDS = st.text("0123456789abcdef", min_size=12, max_size=12)


def launch_named(name: str, digits: str = "0123456789ab") -> Launch:
    return Launch(
        "docker", "ads", "prod", name, f"{name}-{digits}", "zookeeper://zookeeper:2181/heronry", "/srv/x", "/run/x",
        package_digest="d" * 64, store_credential="/srv/heronry/store-credential",
    )  # fmt: skip


def spec(number: int = 3, limits: Resources = LIMITS, spread: int = 0) -> ContainerSpec:
    launch = container_spec.launch_inside(launch_named("T"), "http://api:9000")
    return container_spec.build_container_spec("heronry", launch, number, "heronry:latest", limits, spread=spread)


def with_one_field_changed(whole: Any) -> Iterator[tuple[str, Any]]:
    """Yield the path of each field, also of nested values, with a copy in which only this field has another value."""
    for field in fields(whole):
        value = getattr(whole, field.name)
        if is_dataclass(value):
            for path, other in with_one_field_changed(value):
                yield f"{field.name}.{path}", replace(whole, **{field.name: other})
        else:
            yield field.name, replace(whole, **{field.name: _other(value)})


def _other(value: Any) -> Any:
    match value:
        case bool():
            return not value
        case int() | float():
            return value + 7
        case str():
            return f"{value}x"
        case ProcessUser():
            return ProcessUser.IMAGE
        case (str(), *_):
            return (*value, "OTHER")
        case ((str() as name, text), *_):
            return ((name, f"{text}x"),)
        case (TmpfsMount() as mount, *_):
            return (replace(mount, size_bytes=2 * mount.size_bytes),)
    raise AssertionError(value)


def check_no_field_is_lost(translate: Callable[[ContainerSpec], object], unsupported: Mapping[str, str]) -> None:
    """Check that a change of a field changes the translation, except for those that have a reason not to."""
    for path, other in with_one_field_changed(spec()):
        is_unsupported = path in unsupported or path.partition(".")[0] in unsupported
        assert (translate(other) == translate(spec())) == is_unsupported, path


def packing(cpu: float, ram: int, tasks: int, task_ram: int) -> PackingPlan:
    instances = tuple(InstancePlan(n, "bolt", n - 1, Resources(0.5, task_ram)) for n in range(1, tasks + 1))
    return PackingPlan("T", (ContainerPlan(1, instances, Resources(cpu, ram)),))


@given(project=NAMES, name=NAMES, digits=IDS, number=st.integers(0, LAST_STANDBY))
def test_container_name_is_a_dns_label(project: str, name: str, digits: str, number: int) -> None:
    host = container_spec.container_host(project, launch_named(name, digits), number)
    assert re.fullmatch(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?", host)
    assert len(host) <= 63
    assert host.endswith(f"-{number}")


@given(name=NAMES, digits=IDS)
def test_compose_network_sorts_first(name: str, digits: str) -> None:
    """The engine publishes ports on the first network by name."""
    assert container_spec.shared_name("my-project", launch_named(name, digits)) > "my-project_cluster"


@given(name=NAMES, one=IDS, other=IDS)
def test_submissions_of_one_name_have_distinct_names(name: str, one: str, other: str) -> None:
    names = {container_spec.shared_name("heronry", launch_named(name, digits)) for digits in (one, other)}
    assert len(names) == len({one[-6:], other[-6:]})


@given(cpu=st.floats(0, 64), ram=st.integers(0, 1 << 34), tasks=st.integers(1, 20), cores=st.integers(1, 64))
def test_limits_leave_room_for_tasks_and_runtime(cpu: float, ram: int, tasks: int, cores: int) -> None:
    found = container_spec.container_limits(packing(cpu, ram, tasks, 100 * MiB), {}, 1, cores)
    assert found.ram_bytes >= max(ram, tasks * 100 * MiB + container_spec.OWN_RAM)
    assert 0 < found.cpu <= cores, "the engine refuses more cores than it has"
    stated = container_spec.container_limits(
        packing(cpu, ram, tasks, 100 * MiB), {"topology.container.ram": ram}, 1, cores
    )
    assert stated.ram_bytes == ram, "what the user states is the limit"


def test_standby_has_the_limits_of_container_0() -> None:
    for replicas in (1, 2, 3):
        config = {"topology.master.replicas": replicas}
        found = {
            container_spec.container_limits(packing(1, 1, 1, 1), config, number, 8) for number in (0, 100_001, 100_002)
        }
        assert found == {Resources(1.0, 512 * MiB)}


def test_container_is_confined_and_holds_no_secret() -> None:
    whole = spec(3, Resources(1.5, 512 * MiB))
    security, limits = whole.security, whole.limits
    assert security.read_only_root
    assert security.dropped_capabilities == ("ALL",)
    assert security.added_capabilities == ("KILL", "SETGID", "SETUID"), "to become another user, and to signal that one"
    assert security.no_new_privileges
    assert limits is not None
    assert (limits.memory_bytes, limits.cpus) == (512 * MiB, 1.5)
    assert limits.pids
    assert whole.reap_orphans
    assert whole.log_rotation is not None
    assert whole.user is ProcessUser.BOOTSTRAP_ROOT, "until its first program has become another user"
    assert whole.command[-2:] == ("--user", "heronry")
    assert whole.labels() == {
        "org.heronry.cluster": "heronry", "org.heronry.role": "ads", "org.heronry.environ": "prod",
        "org.heronry.topology": "T", "org.heronry.topology-id": "T-0123456789ab", "org.heronry.container": "3",
    }  # fmt: skip
    assert whole.environment == (("HOME", "/tmp"),)


def test_launch_in_a_container_names_only_inner_paths() -> None:
    launch = container_spec.launch_inside(launch_named("T"), "http://api:9000")
    own = container_spec.launch_of(launch, container_spec.container_host("heronry", launch, 2), 2)
    assert own.host == container_spec.container_host("heronry", launch, 2)
    assert own.bind_host == "0.0.0.0"
    for path in (own.home, own.runtime_dir, own.store_credential):
        assert path.startswith(container_spec.VOLUME_PATH)
    assert own.api_url == "http://api:9000"
    assert own.settings["heron.scheduler"] == "docker"
    assert own.settings["heron.user.code.user"] == "heronry-code", "whatever was given"
    assert (
        container_spec.launch_of(
            container_spec.launch_inside(replace(launch_named("T"), store_credential=""), ""), "host", 2
        ).store_credential
        == ""
    )
