"""Launch parameters of every process of a topology, as one JSON file without secrets, which have separate files.

The scheduler writes ``launch.json`` into the topology's folder. Each process is started with ``--launch PATH`` and a
few arguments of its own, so that command lines are short and uniform in ``ps``.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from heron_runtime.files import replace_file


@dataclass(frozen=True)
class Launch:
    """Locations of a topology and the addresses by which its processes find each other. Paths are absolute."""

    cluster: str
    role: str
    environ: str
    topology: str
    topology_id: str
    store_url: str  # files:///path, zookeeper[+tls]://host:port,…/root or memory://
    home: str  # the topology's folder: log-files/ package/ metrics/ secret key.pem launch.json
    runtime_dir: str  # short, 0700: Unix sockets and heartbeats
    host: str = "127.0.0.1"  # the name or address that this host's processes publish
    settings: dict[str, Any] = field(default_factory=dict)  # heron.* keys, see heron_runtime.model.settings
    store_credential: str = ""  # path of the file with the store's credential, if it has one
    package_digest: str = ""  # SHA-256 of the user's package (tar.gz) at the api server; "" where it lies in package/
    api_url: str = ""  # where containers fetch the package
    bind: str = ""  # the address to listen on, if it is not ``host`` (a container's address depends on its networks)
    key: str = ""  # path of the file with the topology's key, if that is not in ``home``
    start_checkpoint: int = 0  # complete checkpoint in storage from which the topology starts; 0: without state
    start_generation: int = 0  # the last generation of the topology that took it
    store_id: str = ""  # identity of the state store that holds the submission; "" if it is unknown

    @property
    def bind_host(self) -> str:
        """Address to listen on."""
        return self.bind or self.host

    @property
    def log_dir(self) -> Path:
        """Folder with the log of every process, ``<process name>.log``."""
        return Path(self.home, "log-files")

    @property
    def package_dir(self) -> Path:
        """Folder with the user's code, which instances add to ``sys.path`` after the fork."""
        return Path(self.home, "package")

    @property
    def metrics_dir(self) -> Path:
        """Folder with the JSON lines and the saved totals of metrics managers."""
        return Path(self.home, "metrics")

    def prometheus_port_file(self, container: int) -> Path:
        """Return the file to which a container's metrics manager writes the port of its Prometheus endpoint."""
        return self.metrics_dir / f"prometheus-{container}.port"

    @property
    def secret_file(self) -> Path:
        """File with the secret, mode 0400.

        The keys of instances derive from the secret. It also authorizes the download of the package.
        """
        return Path(self.home, "secret")

    def secret(self) -> str:
        """Read the topology's secret. Raises OSError."""
        return self.secret_file.read_text().strip()

    @property
    def key_file(self) -> Path:
        """File with the topology's key and certificate, mode 0400 (``heron_runtime.net.identity``)."""
        return Path(self.key or Path(self.home, "key.pem"))

    def stream_manager_socket(self, container: int) -> str:
        """Return the path of the socket on which the container's stream manager serves its instances."""
        return f"{self.runtime_dir}/sm{container}.sock"

    def metrics_manager_socket(self, container: int) -> str:
        """Return the address of the container's metrics manager, as a target of gRPC."""
        return f"unix:{self.runtime_dir}/mm{container}.sock"

    def heartbeats(self, container: int) -> Path:
        """Return the folder with the heartbeats of the container's processes (``heron_runtime.process``)."""
        return Path(self.runtime_dir, f"beats{container}")

    def heartbeat_file(self, container: int, slot: int) -> Path:
        """Return the heartbeat file of one process."""
        return self.heartbeats(container) / str(slot)

    @property
    def instance_launch_file(self) -> Path:
        """File with the parameters for an executed instance whose user cannot read Heronry's files."""
        return Path(self.runtime_dir, "launch.json")

    def for_instances(self) -> Launch:
        """Return a copy without the addresses and paths that instances must not use."""
        return replace(self, store_url="", store_credential="", key="", api_url="")

    def save(self, path: Path) -> None:
        """Write the file atomically, with mode 0600."""
        replace_file(path, self.to_json(), 0o600)

    def to_json(self) -> str:
        """Return the content of the file."""
        return json.dumps(asdict(self), indent=1)

    @classmethod
    def load(cls, path: str | Path) -> Launch:
        """Read the file. Raises OSError, ValueError."""
        return cls(**json.loads(Path(path).read_text()))
