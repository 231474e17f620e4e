"""The operations of a cluster, as the commands use them (``LocalCluster``, ``SlurmCluster`` and ``RemoteCluster``)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from heron_control.progress import Progress
from heron_runtime.failures import NotFound
from heron_runtime.model.ids import is_safe_name

if TYPE_CHECKING:  # a dry run uses no client, and imports no gRPC
    from heron_cli.clusters import ClusterAddress
    from heron_control.inspection.inspector import LoggedProcess
    from heron_control.inspection.topology_status import TopologyStatus
    from heron_control.packaging.requirements import TargetPlatform
    from heron_control.packing.update import UpdateRequest
    from heron_control.submission.submission import Submission
    from heron_runtime.model.topology import TopologyState
    from heron_runtime.wire.container import FileData


def server_lives() -> bool:
    """Return True: the API server starts the topology, and a request without an answer tells that it is away."""
    return True


def check_topology_name(name: str) -> str:
    """Return the name of a topology. Raises NotFound if no topology can have it."""
    if not is_safe_name(name):
        raise NotFound(
            f"invalid topology name {name[:64]!r}", "Use letters, digits, '_', '-' and '.', and a letter first."
        )
    return name


@dataclass(frozen=True)
class TopologyLogs:
    """Processes of a topology that write logs, and a function that reads a part of a log.

    Attributes:
        processes: The processes that write logs.
        components: Names of all components.
        read: Takes container, path, offset and length in bytes.
    """

    processes: tuple[LoggedProcess, ...]
    components: tuple[str, ...]
    read: Callable[[int, str, int, int], FileData]


class ClusterClient(Protocol):
    """A cluster that runs topologies.

    Each operation on a topology takes the address and the name of the topology. Every method can raise the exceptions
    that ``heron_runtime.failures.to_failure`` knows.
    """

    name: str

    def session(self) -> AbstractContextManager[object]:
        """Share one connection between the operations within the block. Optional; can be nested."""

    def target(self) -> TargetPlatform | None:
        """Return the platform that packages have to fit, None if it is that of this interpreter."""

    def runs_on_this_machine(self) -> bool:
        """Return True if the tasks see the files of this machine at the same paths."""

    def submit(self, submission: Submission, progress: Progress, *, replace: bool = False) -> Callable[[], bool]:
        """Start a topology. If it raises, the topology leaves nothing behind.

        Args:
            submission: The topology with its package.
            progress: Shows the current step.
            replace: Kill a running topology of this name first, after all other preparation.

        Returns:
            A function that tells whether the process or job that starts the topology still exists.
        """

    def copy_running_version(self, address: ClusterAddress, name: str, folder: Path) -> Submission | None:
        """Return a submission of the running topology with a copy of its code in the new `folder`.

        None if the topology does not run or its code is not accessible.
        """

    def start_previous_version(self, address: ClusterAddress, name: str) -> tuple[str, str] | None:
        """Start the version again that the last replacement has ended, if the cluster itself keeps its code.

        Returns:
            Its new topology id and the checkpoint that it starts from (or ""), None if the cluster keeps no code.
        """

    def kill(self, address: ClusterAddress, name: str, progress: Progress, *, keep_logs: bool = False) -> str:
        """Kill a topology and wait until its processes, sockets and state are gone.

        Returns:
            Where the logs are kept, "" if they are not.
        """

    def drain(self, address: ClusterAddress, name: str, secs: float, progress: Progress) -> int:
        """Pause a topology and process the records that it has read, within `secs` seconds.

        Returns:
            The number of the last checkpoint, 0 if the topology takes none.
        """

    def restart(self, address: ClusterAddress, name: str, container: int, timeout_secs: float) -> tuple[int, ...]:
        """Restart a container, or all containers (-1). Returns their numbers."""

    def update(
        self, address: ClusterAddress, name: str, request: UpdateRequest, secs: float, progress: Progress, *,
        dry_run: bool,
    ) -> dict[str, Any]:  # fmt: skip
        """Change parallelism, containers or settings within `secs` seconds, and wait until the new plan runs.

        Returns:
            The changes (``PlannedUpdate.document``). With `dry_run` nothing has changed.
        """

    def set_state(self, address: ClusterAddress, name: str, state: TopologyState, progress: Progress) -> None:
        """Activate or pause the spouts, and wait for the decision of the topology master."""

    def checkpoints(self, address: ClusterAddress, name: str) -> list[dict[str, Any]]:
        """Return the checkpoints (``CheckpointCatalog.rows``)."""

    def checkpoint(self, address: ClusterAddress, name: str, which: str, *, verify: bool) -> dict[str, Any]:
        """Return the contents of a checkpoint (``CheckpointCatalog.details``)."""

    def name_checkpoint(
        self, address: ClusterAddress, name: str, label: str, wait_secs: float, progress: Progress
    ) -> tuple[int, str]:
        """Take a checkpoint and keep a copy under a name. Returns its number and folder."""

    def delete_checkpoint(self, address: ClusterAddress, name: str, label: str) -> None:
        """Delete a named checkpoint."""

    def take_checkpoint(self, address: ClusterAddress, name: str, wait_secs: float, progress: Progress) -> int:
        """Take a checkpoint and wait up to `wait_secs` seconds for it. Returns its number (``Inspector``)."""

    def restore(
        self, address: ClusterAddress, name: str, checkpoint: int, progress: Progress, *, repeat_output: bool
    ) -> tuple[int, int]:
        """Restore a topology from a checkpoint, 0 for the last one. Returns the new generation and the checkpoint."""

    def topologies(self, address: ClusterAddress) -> list[dict[str, Any]]:
        """Return the topologies that match the given parts of the address, as rows of ``heron list``."""

    def status(self, address: ClusterAddress, name: str) -> TopologyStatus:
        """Return the state of all processes of a topology."""

    def metrics(
        self, address: ClusterAddress, name: str, component: str, interval: float, wanted: Iterable[str]
    ) -> dict[str, Any]:
        """Return metrics (``heron_control.inspection.metrics_table.document``)."""

    def logs(self, address: ClusterAddress, name: str) -> TopologyLogs:
        """Return the logs of a topology."""
