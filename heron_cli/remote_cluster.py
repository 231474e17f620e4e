"""Client of a cluster with an API server: each operation is an HTTP request.

The user's file is evaluated on this machine only: the server gets the definition and the package, and computes the
packing plan. A submit carries the id of the definition as its request id, so that it takes effect once even if it is
sent again after the connection breaks.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any
from urllib.parse import quote, urlsplit

import msgspec

from heron_cli.api_client import LONG_SECONDS, ApiClient
from heron_cli.cluster_client import TopologyLogs, check_topology_name, server_lives
from heron_cli.clusters import LOCAL, ClusterAddress
from heron_cli.console import print_message
from heron_cli.home import SavedLogin
from heron_control.inspection.inspector import LoggedProcess
from heron_control.inspection.status_document import from_document
from heron_control.inspection.topology_status import TopologyStatus
from heron_control.packaging.requirements import TargetPlatform
from heron_control.packaging.shipping import pack_package
from heron_control.packing.update import UpdateRequest
from heron_control.progress import Progress
from heron_control.submission.submission import Submission
from heron_control.web.names import is_loopback
from heron_runtime.failures import Failure, Interrupted, InvalidTopology, NotFound
from heron_runtime.model.checkpoints import keeps_state
from heron_runtime.model.topology import TopologyState
from heron_runtime.wire import message_codecs
from heron_runtime.wire.container import FileData

TOPOLOGIES = "/api/v1/topologies"
SUBMIT_RETRIES = 3
MAX_LOG_PART_BYTES = 1 << 20


class _Version(msgspec.Struct):
    """Name of the cluster, scheduler and platform of its containers, and limits of an API server."""

    cluster: str
    scheduler: str
    runs: TargetPlatform
    max_package_bytes: int


class RemoteCluster:
    """``ClusterClient`` of a cluster with an API server. Not thread-safe."""

    def __init__(self, name: str, login: SavedLogin) -> None:
        self.name = name
        self._login = login
        self._client: ApiClient | None = None

    @contextmanager
    def session(self) -> Iterator[ApiClient]:
        """Open an HTTP client until the end of the outermost block."""
        if self._client is not None:
            yield self._client
            return
        with ApiClient(self._login, self.name) as self._client:
            try:
                yield self._client
            finally:
                self._client = None

    def _path(self, address: ClusterAddress, name: str, tail: str = "") -> str:
        names = f"{self._login.cluster}/{address.role}/{address.environ}/{check_topology_name(name)}"
        return f"{TOPOLOGIES}/{names}{tail}"

    def _json(self, method: str, path: str, **options: Any) -> Any:
        with self.session() as client:
            return client.json(method, path, **options)

    def version(self) -> _Version:
        """Return the version document of the server. Raises Failure."""
        document = self._json("GET", "/api/v1/version")
        try:
            return msgspec.convert(document, _Version)
        except msgspec.ValidationError as error:
            raise Failure(f"{self._login.api}: unsupported version of the API server: {error}") from None

    def target(self) -> TargetPlatform:
        """Return the platform of the server's containers."""
        return self.version().runs

    def runs_on_this_machine(self) -> bool:
        """Return True if the tasks are processes of this machine."""
        return self.version().scheduler == LOCAL and is_loopback(urlsplit(self._login.api).hostname or "")

    def submit(self, submission: Submission, progress: Progress, *, replace: bool = False) -> Callable[[], bool]:
        """Send the definition, and the packed code unless the server has it."""
        definition = submission.definition
        where = f"{self.name}/{submission.role}/{submission.environ} {definition.name}"
        handover = submission.handover if replace and submission.start is None else None
        if handover is not None and keeps_state(definition.config):
            print_message(
                "note: the running version is drained, and the new one continues from its checkpoint "
                f"upgrade-NUMBER. If the API server stops meanwhile, see `heron status {where}` and `heron checkpoint "
                f"list {where}`, and run `heron activate {where}` if the old version is paused."
            )
        fields = {
            "name": definition.name,
            "cluster": self._login.cluster,
            "role": submission.role,
            "environment": submission.environ,
            "user": submission.user,
            "state": str(submission.state),
            "settings": json.dumps(dict(submission.settings)),
            "replace": "true" if replace else "false",
        }
        if submission.start is not None:
            fields["from_checkpoint"] = submission.start.reference
            fields["allow_dropped_state"] = "true" if submission.start.may_drop else "false"
        elif handover is not None:
            fields["allow_dropped_state"] = "true" if handover.may_drop else "false"
            fields["timeout_seconds"] = str(handover.seconds)
        elif replace:
            fields["without_state"] = "true"
        with self.session() as client, tempfile.TemporaryDirectory(prefix="heronry-send-") as folder:
            progress("packing the code")
            archive = Path(folder, "package.tar.gz")
            digest = pack_package(submission.package, archive)
            if self._has_package(client, digest):
                progress("sending the definition")
                self._send(client, {**fields, "package": digest}, submission, None)
                return server_lives
            size, limit = archive.stat().st_size, self.version().max_package_bytes
            if size > limit:
                raise InvalidTopology(
                    f"the package with its requirements has {size >> 20} MiB; {self.name} accepts {limit >> 20} MiB",
                    "Remove data and unused files from it.",
                )
            progress(f"sending {size / 1024:.0f} KiB of code")
            with archive.open("rb") as package:
                self._send(client, fields, submission, package)
        return server_lives

    def _has_package(self, client: ApiClient, digest: str) -> bool:
        try:
            client.request("HEAD", f"/api/v1/packages/{digest}")
        except Failure:
            return False  # the submit request reports the error with a body
        return True

    def _send(
        self, client: ApiClient, fields: dict[str, str], submission: Submission, package: IO[bytes] | None
    ) -> None:
        """Send the submit request. httpx reads the package from disk, and rewinds it for a retry."""
        files: dict[str, Any] = {"definition": ("definition", message_codecs.TOPOLOGY.encode(submission.definition))}
        if package is not None:
            files["topology"] = ("topology.tar.gz", package, "application/gzip")
        headers = {"idempotency-key": submission.definition.id}
        try:
            secs = LONG_SECONDS + float(fields.get("timeout_seconds", 0))
            answer = client.request(
                "POST", TOPOLOGIES, data=fields, files=files, headers=headers, retry_count=SUBMIT_RETRIES, timeout=secs
            )
            for change in answer.json().get("changes", ()):
                print_message(f"note: replacing {submission.definition.name} changed {change}")
        except KeyboardInterrupt:
            where = f"{self.name}/{submission.role}/{submission.environ} {submission.definition.name}"
            raise Interrupted(
                "interrupted while the API server was receiving the topology: it may run",
                f"See `heron status {where}`, or stop it with `heron kill {where}`.",
            ) from None

    def copy_running_version(self, address: ClusterAddress, name: str, folder: Path) -> Submission | None:
        """Return None: only the server has the code."""
        return None

    def start_previous_version(self, address: ClusterAddress, name: str) -> tuple[str, str] | None:
        """Let the server start the version that it has replaced."""
        try:
            done = self._json("POST", self._path(address, name, "/rollback"), timeout=LONG_SECONDS)
        except NotFound:
            return None
        return str(done["topology_id"]), str(done["from_checkpoint"])

    def kill(self, address: ClusterAddress, name: str, progress: Progress, *, keep_logs: bool = False) -> str:
        """Kill a topology. Returns where the server keeps its logs."""
        progress(f"waiting for {self._login.api}")
        options = {"params": {"keep_logs": "true" if keep_logs else "false"}, "timeout": LONG_SECONDS}
        logs = self._json("DELETE", self._path(address, name), **options).get("logs", "")
        return f"{logs} on the machine of the API server" if logs else ""

    def drain(self, address: ClusterAddress, name: str, secs: float, progress: Progress) -> int:
        """Drain a topology. The server answers at the end."""
        options = {"data": {"timeout_seconds": str(secs)}, "timeout": secs + LONG_SECONDS}
        return int(self._json("POST", self._path(address, name, "/drain"), **options)["checkpoint"])

    def restart(self, address: ClusterAddress, name: str, container: int, timeout_secs: float) -> tuple[int, ...]:
        """Restart containers. The server answers when they run again."""
        data = {"container_id": str(container), "timeout_seconds": str(timeout_secs)}
        options = {"data": data, "timeout": timeout_secs + LONG_SECONDS}
        return tuple(self._json("POST", self._path(address, name, "/restart"), **options)["containers"])

    def update(
        self,
        address: ClusterAddress,
        name: str,
        request: UpdateRequest,
        secs: float,
        progress: Progress,
        *,
        dry_run: bool,
    ) -> dict[str, Any]:
        """Update a topology. The server answers when the new plan runs, or the old one is restored."""
        data: dict[str, Any] = {
            "component_parallelism": [f"{component}:{tasks}" for component, tasks in request.parallelism.items()],
            "runtime_config": list(map(str, request.settings)),
            "dry_run": "true" if dry_run else "false",
            "timeout_seconds": str(secs),
        }
        if request.containers is not None:
            data["container_number"] = str(request.containers)
        if request.move is not None:
            data["move_container"] = str(request.move)
        options = {"data": data, "timeout": secs + LONG_SECONDS}
        return dict(self._json("POST", self._path(address, name, "/update"), **options))

    def set_state(self, address: ClusterAddress, name: str, state: TopologyState, progress: Progress) -> None:
        """Activate or pause the spouts."""
        tail = "/activate" if state is TopologyState.RUNNING else "/deactivate"
        self._json("POST", self._path(address, name, tail), timeout=LONG_SECONDS)

    def checkpoints(self, address: ClusterAddress, name: str) -> list[dict[str, Any]]:
        """Return the checkpoints that the server finds in the storage."""
        return list(self._json("GET", self._path(address, name, "/checkpoints")))

    def checkpoint(self, address: ClusterAddress, name: str, which: str, *, verify: bool) -> dict[str, Any]:
        """Return a checkpoint. With `verify` the server reads all of its files."""
        options: dict[str, Any] = {"params": {"verify": "true"}, "timeout": LONG_SECONDS} if verify else {}
        return dict(self._json("GET", self._path(address, name, f"/checkpoints/{quote(which, safe='')}"), **options))

    def name_checkpoint(
        self, address: ClusterAddress, name: str, label: str, wait_secs: float, progress: Progress
    ) -> tuple[int, str]:
        """Take a checkpoint and keep a copy on the server."""
        options = {"data": {"wait_seconds": str(wait_secs), "label": label}, "timeout": wait_secs + LONG_SECONDS}
        done = self._json("POST", self._path(address, name, "/checkpoint"), **options)
        return int(done["checkpoint"]), f"{done['folder']} on the machine of the API server"

    def delete_checkpoint(self, address: ClusterAddress, name: str, label: str) -> None:
        """Delete a named checkpoint on the server."""
        self._json("DELETE", self._path(address, name, f"/checkpoints/{quote(label, safe='')}"))

    def take_checkpoint(self, address: ClusterAddress, name: str, wait_secs: float, progress: Progress) -> int:
        """Take a checkpoint by the topology master."""
        options = {"data": {"wait_seconds": str(wait_secs)}, "timeout": wait_secs + LONG_SECONDS}
        return int(self._json("POST", self._path(address, name, "/checkpoint"), **options)["checkpoint"])

    def restore(
        self, address: ClusterAddress, name: str, checkpoint: int, progress: Progress, *, repeat_output: bool
    ) -> tuple[int, int]:
        """Restore a checkpoint by the topology master."""
        data = {"checkpoint": str(checkpoint), "repeat_output": "true" if repeat_output else "false"}
        done = self._json("POST", self._path(address, name, "/restore"), data=data, timeout=LONG_SECONDS)
        return int(done["generation"]), int(done["checkpoint"])

    def topologies(self, address: ClusterAddress) -> list[dict[str, Any]]:
        """Return the topologies, with the name that the user gave to the cluster."""
        given = {"role": address.given_role, "environ": address.given_environ}
        params = {key: value for key, value in given.items() if value is not None}
        return [{**row, "cluster": self.name} for row in self._json("GET", TOPOLOGIES, params=params)]

    def status(self, address: ClusterAddress, name: str) -> TopologyStatus:
        """Return the status that the server collects."""
        document = self._json("GET", self._path(address, name, "/status"))
        try:
            return from_document({**document, "cluster": self.name})
        except (ValueError, TypeError) as error:
            raise Failure(f"{self._login.api}: invalid status document: {error}") from None

    def metrics(
        self, address: ClusterAddress, name: str, component: str, interval: float, wanted: Iterable[str]
    ) -> dict[str, Any]:
        """Return metrics of the topology master."""
        params = {"component": component, "interval": interval, "metric": list(wanted)}
        document: dict[str, Any] = self._json("GET", self._path(address, name, "/metrics"), params=params)
        return document

    def logs(self, address: ClusterAddress, name: str) -> TopologyLogs:
        """Read logs through the server."""
        document = self._json("GET", self._path(address, name, "/logs"))
        processes = tuple(LoggedProcess(p["process"], p["component"], p["container"]) for p in document["processes"])

        def read(container: int, path: str, offset: int, length: int) -> FileData:
            params = {"path": path, "offset": offset, "length": min(length, MAX_LOG_PART_BYTES)}
            with self.session() as client:
                try:
                    part = client.request(
                        "GET", self._path(address, name, f"/containers/{container}/file"), params=params
                    )
                except NotFound as error:
                    raise FileNotFoundError(2, error.message, path) from None
            return FileData(int(part.headers["heronry-offset"]), part.content, int(part.headers["heronry-size"]))

        return TopologyLogs(processes, tuple(document["components"]), read)
