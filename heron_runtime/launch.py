"""Launch parameters of every process of a topology, as one JSON file (no secrets: those are files of their own).

The scheduler writes ``launch.json`` into the topology's folder; each process is started with ``--launch PATH`` and its
own few arguments, so that command lines stay short and the same in ``ps`` everywhere.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from heron_runtime.files import replace_file


@dataclass(frozen=True)
class Launch:
    """Where the topology lives and how its processes find each other. Paths are absolute."""

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
    bind: str = ""  # the address they listen on, where that is not ``host``: a container's changes with its networks
    key: str = ""  # path of the file with the topology's key, where that is not in ``home``
    start_checkpoint: int = 0  # among its files from the beginning, and complete: it begins with it; 0: with nothing
    start_generation: int = 0  # the last one of those who took it

    @property
    def bind_host(self) -> str:
        """The address to listen on."""
        return self.bind or self.host

    @property
    def log_dir(self) -> Path:
        """Logs of every process: ``<process name>.log``."""
        return Path(self.home, "log-files")

    @property
    def package_dir(self) -> Path:
        """The user's code; goes on ``sys.path`` of instances after the fork."""
        return Path(self.home, "package")

    @property
    def metrics_dir(self) -> Path:
        """JSON lines and the saved totals of metrics managers."""
        return Path(self.home, "metrics")

    def prometheus_port_file(self, container: int) -> Path:
        """Where a container's metrics manager writes the port of its Prometheus endpoint."""
        return self.metrics_dir / f"prometheus-{container}.port"

    @property
    def secret_file(self) -> Path:
        """Secret from which keys of instances derive, and which a download of the package proves; mode 0400."""
        return Path(self.home, "secret")

    def secret(self) -> str:
        """The topology's secret. Raises OSError."""
        return self.secret_file.read_text().strip()

    @property
    def key_file(self) -> Path:
        """The topology's key and certificate, mode 0400 (``heron_runtime.net.identity``)."""
        return Path(self.key or Path(self.home, "key.pem"))

    def stream_manager_socket(self, container: int) -> str:
        """Path of the socket where the container's stream manager serves its instances."""
        return f"{self.runtime_dir}/sm{container}.sock"

    def metrics_manager_socket(self, container: int) -> str:
        """gRPC target of the container's metrics manager."""
        return f"unix:{self.runtime_dir}/mm{container}.sock"

    def heartbeats(self, container: int) -> Path:
        """The folder of the heartbeats of the container's processes (``heron_runtime.liveness``)."""
        return Path(self.runtime_dir, f"beats{container}")

    def heartbeat_file(self, container: int, slot: int) -> Path:
        """Return the file of one process."""
        return self.heartbeats(container) / str(slot)

    @property
    def instance_launch_file(self) -> Path:
        """Parameters of an executed instance whose user cannot read the files of Heronry."""
        return Path(self.runtime_dir, "launch.json")

    def for_instances(self) -> Launch:
        """The launch without the places of what instances have no business with."""
        return replace(self, store_url="", store_credential="", key="", api_url="")

    def save(self, path: Path) -> None:
        """Write atomically, mode 0600."""
        replace_file(path, self.to_json(), 0o600)

    def to_json(self) -> str:
        """The text of the file."""
        return json.dumps(asdict(self), indent=1)

    @classmethod
    def load(cls, path: str | Path) -> Launch:
        """Read. Raises OSError, ValueError."""
        return cls(**json.loads(Path(path).read_text()))
