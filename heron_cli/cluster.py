"""What a cluster offers to the commands: they know it by this protocol only."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from heron_cli.address import Address
from heron_control.progress import Progress

if TYPE_CHECKING:  # a dry run asks nobody, and so needs no gRPC
    from heron_control.inspection.inspector import LoggedProcess
    from heron_control.inspection.topology_status import TopologyStatus
    from heron_control.packaging.requirements import TargetPlatform
    from heron_control.packing.update import UpdateRequest
    from heron_control.submission.submission import Submission
    from heron_runtime.model.topology import TopologyState
    from heron_runtime.wire.container import FileData


@dataclass(frozen=True)
class Logs:
    """The logs of a topology: who writes one, and how a part of one is read (container, path, offset, length)."""

    processes: tuple[LoggedProcess, ...]
    components: tuple[str, ...]
    read: Callable[[int, str, int, int], FileData]


class Cluster(Protocol):
    """Where topologies run. Every method may raise what ``heron_runtime.failures.to_failure`` knows."""

    name: str

    def session(self) -> AbstractContextManager[object]:
        """What is asked within shares one connection; may be nested, and may be left out."""

    def target(self) -> TargetPlatform | None:
        """What the topologies' packages must fit; None where this very interpreter runs them."""

    def submit(self, submission: Submission, progress: Progress, *, replace: bool = False) -> Callable[[], bool]:
        """Start it. All or nothing: when this raises, nothing of it is left behind.

        ``replace`` kills a topology of this name first, once everything else is prepared. Returns a question: does that
        which starts the topology still live?
        """

    def running_version(self, address: Address, name: str, folder: Path) -> Submission | None:
        """What runs under this name, to be submitted again, with its code kept in a new ``folder``; None if nothing
        runs, or where the code is not within reach."""

    def kill(self, address: Address, name: str, progress: Progress, *, keep_logs: bool = False) -> str:
        """End it; returns when no process, socket or state is left, and where its logs are kept ("" if nowhere)."""

    def drain(self, address: Address, name: str, secs: float, progress: Progress) -> int:
        """Pause it and let what it has read get through, within so many seconds; the number of the last checkpoint, 0
        where none are taken."""

    def restart(self, address: Address, name: str, container: int, timeout_secs: float) -> tuple[int, ...]:
        """Stop and start one container, or all (-1); returns which."""

    def update(
        self, address: Address, name: str, asked: UpdateRequest, secs: float, progress: Progress, *, dry_run: bool
    ) -> dict[str, Any]:
        """Another parallelism or number of containers, within so many seconds; returns when it runs so what was done,
        or would be (``PlannedUpdate.document``)."""

    def set_state(self, address: Address, name: str, state: TopologyState, progress: Progress) -> None:
        """Let the spouts emit, or pause them; returns when the topology master has decided so."""

    def checkpoints(self, address: Address, name: str) -> list[dict[str, Any]]:
        """See ``KeptCheckpoints.rows``."""

    def checkpoint(self, address: Address, name: str, which: str, *, verify: bool) -> dict[str, Any]:
        """See ``KeptCheckpoints.details``."""

    def name_checkpoint(
        self, address: Address, name: str, label: str, wait_secs: float, progress: Progress
    ) -> tuple[int, str]:
        """See ``KeptCheckpoints.name``: its number, and the folder it is kept in."""

    def delete_checkpoint(self, address: Address, name: str, label: str) -> None:
        """Remove one that has this name."""

    def take_checkpoint(self, address: Address, name: str, wait_secs: float, progress: Progress) -> int:
        """See ``Inspector.take_checkpoint``."""

    def restore(
        self, address: Address, name: str, checkpoint: int, progress: Progress, *, repeat_output: bool
    ) -> tuple[int, int]:
        """See ``Inspector.restore``."""

    def topologies(self, address: Address) -> list[dict[str, Any]]:
        """The rows of ``heron list``, for the parts of the address that were given."""

    def status(self, address: Address, name: str) -> TopologyStatus:
        """What all of its processes say."""

    def metrics(
        self, address: Address, name: str, component: str, interval: float, wanted: Iterable[str]
    ) -> dict[str, Any]:
        """See ``heron_control.inspection.metrics_table.document``."""

    def logs(self, address: Address, name: str) -> Logs:
        """Its logs."""
