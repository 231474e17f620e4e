"""Translation of a container's description to the request body of a Docker engine. The functions are pure."""

from __future__ import annotations

from typing import Any

from heron_control.schedulers.container_spec import VOLUME_PATH, ContainerSpec, LogRotation, ProcessUser

# Compose labels the images it builds, and containers inherit the labels. Without these, compose would treat a
# topology's containers as its own services.
NO_COMPOSE = {f"com.docker.compose.{name}": "" for name in ("project", "service", "version")}

UNSUPPORTED_FIELDS = {"limits.own_cpus": "an engine has one machine, and reserves no cores"}


def container_body(spec: ContainerSpec) -> dict[str, Any]:
    """Return the body of the engine's ``POST /containers/create``, without the files of ``start_folder``.

    ``spread`` is only a label, since the engine has one machine.
    """
    body: dict[str, Any] = {
        "Image": spec.image,
        "Labels": docker_labels(spec),
        "StopSignal": spec.stop_signal,
        "StopTimeout": spec.stop_grace_seconds,
        "HostConfig": _host_config(spec),
    }
    if spec.number is not None:
        body["Hostname"] = spec.name
    if spec.command:
        body["Cmd"] = list(spec.command)
    if spec.environment:
        body["Env"] = [f"{name}={value}" for name, value in spec.environment]
    if spec.user is ProcessUser.BOOTSTRAP_ROOT:
        body["User"] = "root"
    return body


def docker_labels(spec: ContainerSpec) -> dict[str, str]:
    """Return the labels of a container, which compose does not take for its own."""
    return {**NO_COMPOSE, **spec.labels()}


def log_driver(rotation: LogRotation) -> tuple[str, dict[str, str]]:
    """Return the name and the options of the log driver."""
    return "json-file", {"max-size": f"{rotation.file_size_mib}m", "max-file": str(rotation.files)}


def _host_config(spec: ContainerSpec) -> dict[str, Any]:
    security = spec.security
    host: dict[str, Any] = {
        "NetworkMode": spec.network or "none",
        "Init": spec.reap_orphans,
        "ReadonlyRootfs": security.read_only_root,
        "CapDrop": list(security.dropped_capabilities),
        "CapAdd": list(security.added_capabilities),
        "RestartPolicy": {"Name": "no"},  # the scheduler restarts containers, so that the topology reports it
    }
    if security.no_new_privileges:
        host["SecurityOpt"] = ["no-new-privileges:true"]
    if spec.volume is not None:
        mount: dict[str, Any] = {"Type": "volume", "Source": spec.volume.name, "Target": VOLUME_PATH}
        host["Mounts"] = [{**mount, "ReadOnly": True} if spec.volume.read_only else mount]
    if spec.tmpfs:
        host["Tmpfs"] = {mount.path: f"rw,nosuid,nodev,size={mount.size_bytes}" for mount in spec.tmpfs}
    if spec.limits is not None:
        host["Memory"] = spec.limits.memory_bytes
        # No swap: a topology that swaps is slower than one that is restarted.
        host["MemorySwap"] = spec.limits.memory_bytes
        host["NanoCpus"] = int(spec.limits.cpus * 1e9)
        host["PidsLimit"] = spec.limits.pids
    if spec.log_rotation is not None:
        name, options = log_driver(spec.log_rotation)
        host["LogConfig"] = {"Type": name, "Config": options}
    return host
