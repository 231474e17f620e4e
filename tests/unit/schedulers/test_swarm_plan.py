"""A container on a swarm: nothing that hardens it on one engine gets lost, and what its tasks say is read aright."""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from itertools import product
from typing import Any

import pytest

from heron_control.schedulers import docker_plan, swarm_plan
from heron_control.schedulers.swarm_plan import Life, Node, Task, life_of
from heron_runtime.model.plan import Resources
from heron_runtime.model.settings import MiB
from tests.unit.schedulers.test_docker_plan import launch_named

ENDED = ("complete", "shutdown", "failed", "rejected", "remove", "orphaned")
COMING = ("new", "pending", "assigned", "accepted", "preparing", "ready", "starting")
NODES = {"n1": Node("one", "ready", 2.0), "n2": Node("two", "down", 2.0), "n3": Node("three", "unknown", 2.0)}
SECRETS = {"/var/lib/heronry/start/3/secret": "key1"}


def body() -> dict[str, Any]:
    launch = docker_plan.launch_inside(launch_named("T"), "http://api:9000", "swarm")
    return docker_plan.creation("heronry", launch, 3, "heronry:latest", Resources(1.5, 512 * MiB))


def template(given: Mapping[str, Any], **options: Any) -> dict[str, Any]:
    return swarm_plan.service_of("heronry-t-3", given, "sha256:1", SECRETS, **options)


def _changed(value: Any) -> Any:
    """Another value of the same kind."""
    match value:
        case bool():
            return not value
        case int():
            return value + 7
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


def test_what_a_body_says_reaches_the_service_or_is_known_to_be_lacking() -> None:
    whole = body()
    for key in whole.keys() - {"HostConfig", "Image"}:
        assert template({**whole, key: _changed(whole[key])}) != template(whole), key
    for key, value in whole["HostConfig"].items():
        other = deepcopy(whole)
        other["HostConfig"][key] = _changed(value)
        assert (template(other) == template(whole)) == (key in swarm_plan.LACKING), key


def test_what_nobody_has_thought_of_is_refused() -> None:
    for place in ("body", "host"):
        whole = body()
        (whole if place == "body" else whole["HostConfig"])["Sysctls"] = {"a": "b"}
        with pytest.raises(KeyError, match="Sysctls"):
            template(whole)


def test_a_swarm_never_starts_a_container_a_second_time() -> None:
    assert template(body())["RestartPolicy"]["Condition"] == "none"


def test_what_is_secret_is_for_heronry_alone() -> None:
    (secret,) = template(body())["ContainerSpec"]["Secrets"]
    assert secret["File"] == {"Name": "/var/lib/heronry/start/3/secret", "UID": "10001", "GID": "10001", "Mode": 0o400}


def test_what_is_reserved_is_never_more_than_the_limit() -> None:
    for cpu in (0.01, 0.5, 1.5, 64.0):
        launch = docker_plan.launch_inside(launch_named("T"), "http://api:9000")
        found = template(docker_plan.creation("heronry", launch, 3, "i", Resources(cpu, 512 * MiB)))["Resources"]
        assert 0 <= found["Reservations"]["NanoCPUs"] <= found["Limits"]["NanoCPUs"]
        assert found["Reservations"]["MemoryBytes"] == found["Limits"]["MemoryBytes"] == 512 * MiB


def test_a_volume_has_no_name_and_goes_with_its_task() -> None:
    volume = next(m for m in template(body())["ContainerSpec"]["Mounts"] if m["Type"] == "volume")
    assert volume == {"Type": "volume", "Target": docker_plan.VOLUME_PATH}


def test_shared_storage_is_each_topologys_own_folder() -> None:
    mounts = template(body(), storage="/nfs/t")["ContainerSpec"]["Mounts"]
    assert {m["Source"]: m["Target"] for m in mounts if m["Type"] == "bind"} == {
        "/nfs/t/checkpoints": "/var/lib/heronry/topology/checkpoints",
        "/nfs/t/files": "/var/lib/heronry/shared",
    }


def _life(*tasks: Task, wanted: bool = True, started: bool = True) -> Life:
    return life_of(wanted=wanted, started=started, tasks=tasks, nodes=NODES)


def test_a_container_lives_as_long_as_a_task_may_on_a_node_that_is_there() -> None:
    each = [Task(state, node) for state in (*ENDED, *COMING, "running") for node in ("", "n1", "n2", "n3", "n4")]
    for tasks in [(), *product(each), *product(each, repeat=2)]:
        for wanted, started in product((True, False), repeat=2):
            life = _life(*tasks, wanted=wanted, started=started)
            living = [task for task in tasks if task.state not in ENDED and task.node not in ("n2", "n4")]
            assert (life.state in ("starting", "running")) == bool(living or (wanted and not tasks))
            assert life.state != "running" or living[-1].state == "running"
            assert (life.state == "created") == (not tasks and not wanted and not started)


def test_a_task_on_a_node_that_is_down_has_ended_and_says_so() -> None:
    for node, cause in (("n2", "its node two is down"), ("n4", "no longer in the swarm")):
        life = _life(Task("running", node))
        assert (life.state, life.lost) == ("exited", True)
        assert cause in life.trouble
    assert _life(Task("running", "n3")).state == "running", "a node that is silent for a moment is not down"


def test_an_ending_keeps_its_exit_code_or_says_why_there_is_none() -> None:
    assert _life(Task("failed", "n1", "task: non-zero exit (3)", 3)) == Life("exited", "", exit_code=3)
    refused = _life(Task("rejected", "n1", "No such image: sha256:1", None, "sha256:12345"))
    assert "the image is not on one (sha256:12345)" in refused.trouble
    assert "one refused it: invalid mount" in _life(Task("rejected", "n1", "invalid mount")).trouble


def test_what_waits_for_a_place_says_for_what() -> None:
    life = _life(Task("pending", "", "no suitable node (insufficient resources on 3 nodes)"))
    assert life.state == "starting"
    assert "insufficient resources on 3 nodes" in life.trouble


def test_names_of_secrets_fit_and_differ() -> None:
    names = {swarm_plan.secret_name("s" * 63 + end, file) for end in "ab" for file in ("secret", "store-credential")}
    assert len(names) == 4
    assert max(map(len, names)) <= 64
