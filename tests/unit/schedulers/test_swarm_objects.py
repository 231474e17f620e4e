"""Services of a swarm: as hardened as on one engine, and correctly interpreted tasks."""

from __future__ import annotations

from itertools import product
from typing import Any

from heron_control.schedulers import container_spec, swarm_objects
from heron_control.schedulers.container_spec import ContainerSpec
from heron_control.schedulers.engine import ObservedState
from heron_control.schedulers.swarm_objects import SwarmNode, Task, life_of
from heron_runtime.model.plan import Resources
from heron_runtime.model.settings import MiB
from tests.unit.schedulers.test_container_spec import check_no_field_is_lost, spec

ENDED = ("complete", "shutdown", "failed", "rejected", "remove", "orphaned")
COMING = ("new", "pending", "assigned", "accepted", "preparing", "ready", "starting")
NODES = {
    "n1": SwarmNode("one", "ready", 2.0),
    "n2": SwarmNode("two", "down", 2.0),
    "n3": SwarmNode("three", "unknown", 2.0),
}
SECRETS = {"secret": "key1"}


def template(whole: ContainerSpec, **options: Any) -> dict[str, Any]:
    return swarm_objects.service_template(whole, f"sha256:{whole.image}", SECRETS, **options)


def translate(whole: ContainerSpec) -> object:
    return template(whole), swarm_objects.service_labels(whole), swarm_objects.secret_labels(whole)


def test_every_field_reaches_the_service_or_has_a_reason() -> None:
    check_no_field_is_lost(translate, swarm_objects.UNSUPPORTED_FIELDS)


def test_swarm_never_restarts_a_container() -> None:
    assert template(spec())["RestartPolicy"]["Condition"] == "none"


def test_secrets_are_readable_only_by_heronry() -> None:
    (secret,) = template(spec())["ContainerSpec"]["Secrets"]
    assert secret["File"] == {"Name": "/var/lib/heronry/start/3/secret", "UID": "10001", "GID": "10001", "Mode": 0o400}


def test_reservations_do_not_exceed_limits() -> None:
    for cpu in (0.01, 0.5, 1.5, 64.0):
        found = template(spec(3, Resources(cpu, 512 * MiB)))["Resources"]
        assert 0 <= found["Reservations"]["NanoCPUs"] <= found["Limits"]["NanoCPUs"]
        assert found["Reservations"]["MemoryBytes"] == found["Limits"]["MemoryBytes"] == 512 * MiB


def test_volume_is_anonymous_and_ends_with_its_task() -> None:
    volume = next(m for m in template(spec())["ContainerSpec"]["Mounts"] if m["Type"] == "volume")
    assert volume == {"Type": "volume", "Target": container_spec.VOLUME_PATH}


def test_shared_storage_is_a_folder_of_the_topology() -> None:
    mounts = template(spec(), storage="/nfs/t")["ContainerSpec"]["Mounts"]
    assert {m["Source"]: m["Target"] for m in mounts if m["Type"] == "bind"} == {
        "/nfs/t/checkpoints": "/var/lib/heronry/topology/checkpoints",
        "/nfs/t/files": "/var/lib/heronry/shared",
    }


def _life(*tasks: Task, wanted: bool = True, started: bool = True) -> ObservedState:
    return life_of(wanted=wanted, started=started, tasks=tasks, nodes=NODES)


def test_container_lives_while_a_task_may_run_on_an_existing_node() -> None:
    each = [Task(state, node) for state in (*ENDED, *COMING, "running") for node in ("", "n1", "n2", "n3", "n4")]
    for tasks in [(), *product(each), *product(each, repeat=2)]:
        for wanted, started in product((True, False), repeat=2):
            life = _life(*tasks, wanted=wanted, started=started)
            living = [task for task in tasks if task.state not in ENDED and task.node not in ("n2", "n4")]
            assert (life.state in ("starting", "running")) == bool(living or (wanted and not tasks))
            assert life.state != "running" or living[-1].state == "running"
            assert (life.state == "created") == (not tasks and not wanted and not started)


def test_task_on_a_lost_node_has_ended_with_a_reason() -> None:
    for node, cause in (("n2", "its node two is down"), ("n4", "no longer in the swarm")):
        life = _life(Task("running", node))
        assert (life.state, life.lost) == ("exited", True)
        assert cause in life.trouble
    assert _life(Task("running", "n3")).state == "running", "a node that is silent for a moment is not down"


def test_ended_task_has_an_exit_code_or_a_reason() -> None:
    assert _life(Task("failed", "n1", "task: non-zero exit (3)", 3)) == ObservedState("exited", "", exit_code=3)
    refused = _life(Task("rejected", "n1", "No such image: sha256:1", None, "sha256:12345"))
    assert "the image is not on one (sha256:12345)" in refused.trouble
    assert "one refused it: invalid mount" in _life(Task("rejected", "n1", "invalid mount")).trouble


def test_pending_task_reports_its_reason() -> None:
    life = _life(Task("pending", "", "no suitable node (insufficient resources on 3 nodes)"))
    assert life.state == "starting"
    assert "insufficient resources on 3 nodes" in life.trouble


def test_secret_names_fit_and_differ() -> None:
    names = {swarm_objects.secret_name("s" * 63 + end, file) for end in "ab" for file in ("secret", "store-credential")}
    assert len(names) == 4
    assert max(map(len, names)) <= 64
