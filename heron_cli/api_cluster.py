"""A cluster behind an api server: every operation is a request to it, since nothing else of the cluster can be reached.

The user's file is run here, never there: what is sent is the definition, computed, and the package. The packing plan is
the server's business. A submit carries the definition's id as its request id, so that it may be sent again when the
connection breaks, and is done once all the same.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any
from urllib.parse import quote

import msgspec

from heron_cli.address import Address
from heron_cli.api_client import LONG_SECONDS, ApiClient
from heron_cli.cluster import Logs
from heron_cli.console import say
from heron_cli.credentials import Login
from heron_control.inspection.inspector import LoggedProcess
from heron_control.inspection.status_document import from_document
from heron_control.inspection.topology_status import TopologyStatus
from heron_control.packaging.requirements import TargetPlatform
from heron_control.packaging.shipping import pack_package
from heron_control.packing.update import UpdateRequest
from heron_control.progress import Progress
from heron_control.submission.submission import Submission
from heron_runtime.failures import Failure, Interrupted, InvalidTopology, NotFound
from heron_runtime.model.checkpoints import keeps_state
from heron_runtime.model.topology import TopologyState
from heron_runtime.wire import message_codecs
from heron_runtime.wire.container import FileData

TOPOLOGIES = "/api/v1/topologies"
AGAIN = 3
MAX_PART = 1 << 20


class _Version(msgspec.Struct):
    cluster: str
    runs: TargetPlatform
    max_package_bytes: int


class ApiCluster:
    """See ``heron_cli.clusters.Cluster``. Not thread-safe."""

    def __init__(self, name: str, login: Login) -> None:
        self.name = name
        self._login = login
        self._client: ApiClient | None = None

    @contextmanager
    def session(self) -> Iterator[ApiClient]:
        """One client, open for the length of the outermost block."""
        if self._client is not None:
            yield self._client
            return
        with ApiClient(self._login, self.name) as self._client:
            try:
                yield self._client
            finally:
                self._client = None

    def _path(self, address: Address, name: str, tail: str = "") -> str:
        return f"{TOPOLOGIES}/{self._login.cluster}/{address.role}/{address.environ}/{name}{tail}"

    def _json(self, method: str, path: str, **options: Any) -> Any:
        with self.session() as client:
            return client.json(method, path, **options)

    def version(self) -> _Version:
        """What the server says of itself."""
        found = self._json("GET", "/api/v1/version")
        try:
            return msgspec.convert(found, _Version)
        except msgspec.ValidationError as error:
            raise Failure(f"{self._login.api} is no api server that this command knows: {error}") from None

    def target(self) -> TargetPlatform:
        """What the server's containers run."""
        return self.version().runs

    def submit(self, submission: Submission, progress: Progress, *, replace: bool = False) -> Callable[[], bool]:
        """Pack the code, send it unless the server has it, and the definition."""
        definition = submission.definition
        where = f"{self.name}/{submission.role}/{submission.environ} {definition.name}"
        carry = submission.carry if replace and submission.start is None else None
        if carry is not None and keeps_state(definition.config):
            say(
                "note: what runs is drained, its state is kept as checkpoint upgrade-NUMBER, and the new one goes on "
                f"with it; should the api server end meanwhile, `heron status {where}` and `heron checkpoint list "
                f"{where}` say how far it came (`heron activate {where}` where the old one is paused)"
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
        elif carry is not None:
            fields["allow_dropped_state"] = "true" if carry.may_drop else "false"
            fields["timeout_seconds"] = str(carry.seconds)
        elif replace:
            fields["without_state"] = "true"
        with self.session() as client, tempfile.TemporaryDirectory(prefix="heronry-send-") as folder:
            progress("packing the code")
            archive = Path(folder, "package.tar.gz")
            digest = pack_package(submission.package, archive)
            if self._has(client, digest):
                progress("sending the definition")
                self._send(client, {**fields, "package": digest}, submission, None)
                return lambda: True
            size, most = archive.stat().st_size, self.version().max_package_bytes
            if size > most:
                raise InvalidTopology(
                    f"the code with its requirements has {size >> 20} MiB, {self.name} takes {most >> 20} MiB at most",
                    "Leave data and what is not needed out of it.",
                )
            progress(f"sending {size / 1024:.0f} KiB of code")
            with archive.open("rb") as package:
                self._send(client, fields, submission, package)
        return lambda: True

    def _has(self, client: ApiClient, digest: str) -> bool:
        try:
            client.ask("HEAD", f"/api/v1/packages/{digest}")
        except Failure:
            return False  # whatever it is, the submit request says it better than an answer without a body
        return True

    def _send(
        self, client: ApiClient, fields: dict[str, str], submission: Submission, package: IO[bytes] | None
    ) -> None:
        """The package is read from disk while it is sent; httpx begins it anew when it is sent again."""
        files: dict[str, Any] = {"definition": ("definition", message_codecs.TOPOLOGY.encode(submission.definition))}
        if package is not None:
            files["topology"] = ("topology.tar.gz", package, "application/gzip")
        headers = {"idempotency-key": submission.definition.id}
        try:
            secs = LONG_SECONDS + float(fields.get("timeout_seconds", 0))
            client.ask("POST", TOPOLOGIES, data=fields, files=files, headers=headers, again=AGAIN, timeout=secs)
        except KeyboardInterrupt:
            where = f"{self.name}/{submission.role}/{submission.environ} {submission.definition.name}"
            raise Interrupted(
                "interrupted while the api server was taking it in: it may run, or not",
                f"See `heron status {where}`, or end it with `heron kill {where}`.",
            ) from None

    def running_version(self, address: Address, name: str, folder: Path) -> Submission | None:
        """The server has the code."""
        return None

    def kill(self, address: Address, name: str, progress: Progress, *, keep_logs: bool = False) -> str:
        """Returns where the server keeps the logs."""
        progress(f"asking {self._login.api}")
        options = {"params": {"keep_logs": "true" if keep_logs else "false"}, "timeout": LONG_SECONDS}
        logs = self._json("DELETE", self._path(address, name), **options).get("logs", "")
        return f"{logs} on the machine of the api server" if logs else ""

    def drain(self, address: Address, name: str, secs: float, progress: Progress) -> int:
        """Answered when all is through."""
        options = {"data": {"timeout_seconds": str(secs)}, "timeout": secs + LONG_SECONDS}
        return int(self._json("POST", self._path(address, name, "/drain"), **options)["checkpoint"])

    def restart(self, address: Address, name: str, container: int, timeout_secs: float) -> tuple[int, ...]:
        """Answered when they run again."""
        data = {"container_id": str(container), "timeout_seconds": str(timeout_secs)}
        options = {"data": data, "timeout": timeout_secs + LONG_SECONDS}
        return tuple(self._json("POST", self._path(address, name, "/restart"), **options)["containers"])

    def update(
        self, address: Address, name: str, asked: UpdateRequest, secs: float, progress: Progress, *, dry_run: bool
    ) -> dict[str, Any]:
        """Answered when it runs by the new plan, or has the old one again."""
        data: dict[str, Any] = {
            "component_parallelism": [f"{component}:{tasks}" for component, tasks in asked.parallelism.items()],
            "runtime_config": list(map(str, asked.settings)),
            "dry_run": "true" if dry_run else "false",
            "timeout_seconds": str(secs),
        }
        if asked.containers is not None:
            data["container_number"] = str(asked.containers)
        if asked.move is not None:
            data["move_container"] = str(asked.move)
        options = {"data": data, "timeout": secs + LONG_SECONDS}
        return dict(self._json("POST", self._path(address, name, "/update"), **options))

    def set_state(self, address: Address, name: str, state: TopologyState, progress: Progress) -> None:
        """Activate or deactivate."""
        tail = "/activate" if state is TopologyState.RUNNING else "/deactivate"
        self._json("POST", self._path(address, name, tail), timeout=LONG_SECONDS)

    def checkpoints(self, address: Address, name: str) -> list[dict[str, Any]]:
        """As the server finds them in the storage."""
        return list(self._json("GET", self._path(address, name, "/checkpoints")))

    def checkpoint(self, address: Address, name: str, which: str, *, verify: bool) -> dict[str, Any]:
        """As the server finds it; it reads the files, too."""
        options: dict[str, Any] = {"params": {"verify": "true"}, "timeout": LONG_SECONDS} if verify else {}
        return dict(self._json("GET", self._path(address, name, f"/checkpoints/{quote(which, safe='')}"), **options))

    def name_checkpoint(
        self, address: Address, name: str, label: str, wait_secs: float, progress: Progress
    ) -> tuple[int, str]:
        """The server keeps it."""
        options = {"data": {"wait_seconds": str(wait_secs), "label": label}, "timeout": wait_secs + LONG_SECONDS}
        done = self._json("POST", self._path(address, name, "/checkpoint"), **options)
        return int(done["checkpoint"]), f"{done['folder']} on the machine of the api server"

    def delete_checkpoint(self, address: Address, name: str, label: str) -> None:
        """The server has it."""
        self._json("DELETE", self._path(address, name, f"/checkpoints/{quote(label, safe='')}"))

    def take_checkpoint(self, address: Address, name: str, wait_secs: float, progress: Progress) -> int:
        """The server asks the topology master."""
        options = {"data": {"wait_seconds": str(wait_secs)}, "timeout": wait_secs + LONG_SECONDS}
        return int(self._json("POST", self._path(address, name, "/checkpoint"), **options)["checkpoint"])

    def restore(
        self, address: Address, name: str, checkpoint: int, progress: Progress, *, repeat_output: bool
    ) -> tuple[int, int]:
        """The server asks the topology master."""
        data = {"checkpoint": str(checkpoint), "repeat_output": "true" if repeat_output else "false"}
        done = self._json("POST", self._path(address, name, "/restore"), data=data, timeout=LONG_SECONDS)
        return int(done["generation"]), int(done["checkpoint"])

    def topologies(self, address: Address) -> list[dict[str, Any]]:
        """Under the name that the user gave the cluster."""
        given = {"role": address.given_role, "environ": address.given_environ}
        params = {key: value for key, value in given.items() if value is not None}
        return [{**row, "cluster": self.name} for row in self._json("GET", TOPOLOGIES, params=params)]

    def status(self, address: Address, name: str) -> TopologyStatus:
        """Of all of its processes, as the server sees them."""
        found = self._json("GET", self._path(address, name, "/status"))
        try:
            return from_document({**found, "cluster": self.name})
        except (ValueError, TypeError) as error:
            raise Failure(f"the status that {self._login.api} gave is not understood: {error}") from None

    def metrics(
        self, address: Address, name: str, component: str, interval: float, wanted: Iterable[str]
    ) -> dict[str, Any]:
        """The server asks the topology master."""
        params = {"component": component, "interval": interval, "metric": list(wanted)}
        found: dict[str, Any] = self._json("GET", self._path(address, name, "/metrics"), params=params)
        return found

    def logs(self, address: Address, name: str) -> Logs:
        """Read through the server."""
        found = self._json("GET", self._path(address, name, "/logs"))
        processes = tuple(LoggedProcess(p["process"], p["component"], p["container"]) for p in found["processes"])

        def read(container: int, path: str, offset: int, length: int) -> FileData:
            params = {"path": path, "offset": offset, "length": min(length, MAX_PART)}
            with self.session() as client:
                try:
                    part = client.ask("GET", self._path(address, name, f"/containers/{container}/file"), params=params)
                except NotFound as error:
                    raise FileNotFoundError(2, error.message, path) from None
            return FileData(int(part.headers["heronry-offset"]), part.content, int(part.headers["heronry-size"]))

        return Logs(processes, tuple(found["components"]), read)
