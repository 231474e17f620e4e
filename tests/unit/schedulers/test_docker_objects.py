"""Request bodies of a Docker engine."""

from __future__ import annotations

from heron_control.schedulers.container_spec import VOLUME_PATH, ContainerSpec, volume_access_spec
from heron_control.schedulers.docker_engine import tar_of
from heron_control.schedulers.docker_objects import UNSUPPORTED_FIELDS, container_body
from heron_runtime.model.settings import MiB
from tests.unit.schedulers.test_container_spec import check_no_field_is_lost, launch_named, spec


def translate(whole: ContainerSpec) -> object:
    return container_body(whole), tar_of({"secret": b"s"}, whole.start_folder.removeprefix(VOLUME_PATH))


def test_every_field_reaches_the_engine_or_has_a_reason() -> None:
    check_no_field_is_lost(translate, UNSUPPORTED_FIELDS)


def test_container_is_confined() -> None:
    body = container_body(spec())
    host = body["HostConfig"]
    assert host["ReadonlyRootfs"]
    assert host["CapDrop"] == ["ALL"]
    assert host["SecurityOpt"] == ["no-new-privileges:true"]
    assert host["RestartPolicy"] == {"Name": "no"}, "Docker must not restart what the execution state does not know of"
    assert (host["Memory"], host["MemorySwap"], host["NanoCpus"]) == (512 * MiB, 512 * MiB, 1_500_000_000)
    assert body["User"] == "root"
    assert body["Labels"]["com.docker.compose.service"] == "", "compose must not take it for a service of its own"
    assert not [mount for mount in host["Mounts"] if mount["Type"] != "volume"], "nothing of the machine is mounted"


def test_volume_access_container_has_no_network_and_reads_only_if_it_does_not_write() -> None:
    for writes in (False, True):
        host = container_body(volume_access_spec("heronry", launch_named("T"), "i", writes=writes))["HostConfig"]
        (mount,) = host["Mounts"]
        assert (host["NetworkMode"], mount.get("ReadOnly", False)) == ("none", not writes)
