"""Events that the core of the topology master handles, and effects that it asks of its shell."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import Enum

from heron_runtime.model.checkpoints import NO_WISH, CheckpointCommand, CheckpointRecord, Manifest
from heron_runtime.model.plan import NO_CHECKPOINT, PackingPlan, PhysicalPlan
from heron_runtime.model.records import ExecutionState, MasterLocation
from heron_runtime.model.topology import TopologyDefinition, TopologyState
from heron_runtime.wire.master import NOBODY, Bottleneck, Heartbeat, MasterStatus, Register


class Session(Enum):
    """State of the store session."""

    CONNECTED = "connected"
    SUSPENDED = "suspended"
    LOST = "lost"


class WriteResult(Enum):
    """Result of a transaction.

    REFUSED: a node or version was not as expected. NOT_OWNER: the master node belongs to another session. UNKNOWN: the
    store did not answer, and the transaction may or may not have happened.
    """

    DONE = "done"
    REFUSED = "refused"
    NOT_OWNER = "not owner"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class StoreSnapshot:
    """Nodes of the topology in the store, read together; a version is -1 where the node is absent.

    Where state is kept, ``complete`` is the manifest of the last complete checkpoint, which lies among the checkpoint
    files. ``storage_fault`` says why it cannot be read.
    """

    definition: TopologyDefinition | None = None
    packing: PackingPlan | None = None
    plan: PhysicalPlan | None = None
    plan_version: int = -1
    execution: ExecutionState | None = None
    execution_version: int = -1
    master: MasterLocation | None = None
    epoch: int = 0
    epoch_version: int = -1
    record: CheckpointRecord | None = None
    record_version: int = -1
    complete: Manifest | None = None
    storage_fault: str = ""

    def with_written(
        self, written: CommitTransaction, ended: TransactionFinished, complete: Manifest | None
    ) -> StoreSnapshot:
        """Return the snapshot after a transaction of this master.

        Args:
            written: The transaction.
            ended: Its result, with the new versions.
            complete: The manifest of the last complete checkpoint, if the transaction wrote the record of checkpoints.
        """
        snapshot = self
        if written.execution is not None:
            snapshot = replace(snapshot, execution=written.execution, execution_version=ended.execution_version)
        if written.record is not None and complete is not None:
            snapshot = replace(snapshot, record=written.record, record_version=ended.record_version)
            snapshot = replace(snapshot, complete=complete, storage_fault="")
        if written.plan is not None:
            snapshot = replace(snapshot, plan=written.plan, plan_version=ended.plan_version)
        return snapshot


# Events.
@dataclass(frozen=True, slots=True)
class StoreRead:
    """The store was read."""

    stored: StoreSnapshot


@dataclass(frozen=True, slots=True)
class SessionChanged:
    """The state of the store session changed."""

    session: Session


@dataclass(frozen=True, slots=True)
class CampaignEnded:
    """The transaction of ``Campaign`` ended."""

    epoch: int
    result: WriteResult


@dataclass(frozen=True, slots=True)
class TransactionFinished:
    """The transaction of ``CommitTransaction`` ended; versions are those of the nodes after it."""

    result: WriteResult
    plan_version: int = -1
    execution_version: int = -1
    record_version: int = -1


@dataclass(frozen=True, slots=True)
class ManifestWritten:
    """``WriteManifest`` of this checkpoint ended; ``why`` is the error, or ""."""

    checkpoint: int
    why: str = ""


@dataclass(frozen=True, slots=True)
class RegistrationReceived:
    """A stream manager registered on a link."""

    link: int
    message: Register


@dataclass(frozen=True, slots=True)
class HeartbeatReceived:
    """A heartbeat arrived on a link."""

    link: int
    message: Heartbeat


@dataclass(frozen=True, slots=True)
class LinkClosed:
    """The connection of a stream manager ended."""

    link: int


@dataclass(frozen=True, slots=True)
class StateRequested:
    """Request for RUNNING or PAUSED; ``AnswerRequest`` carries the same number.

    ``epoch`` is that of the master which the client addresses, as far as the client knows.
    """

    number: int
    state: TopologyState
    epoch: int = 0


@dataclass(frozen=True, slots=True)
class CheckpointRequested:
    """Request for a checkpoint now.

    ``AnswerRequest`` of this number follows when the checkpoint is complete or cancelled, or at once without ``wait``.
    With ``hold`` the tasks stay paused after the checkpoint, until another plan arrives.
    """

    number: int
    wait: bool
    epoch: int = 0
    hold: bool = False


@dataclass(frozen=True, slots=True)
class RestoreRequested:
    """Request to restore all tasks from the last complete checkpoint, or from the older ``checkpoint``.

    ``manifests`` are those in the storage, None for one that cannot be read. An older checkpoint needs
    ``repeat_output``.
    """

    number: int
    epoch: int = 0
    checkpoint: int = NO_CHECKPOINT
    repeat_output: bool = False
    manifests: Mapping[int, Manifest | None] = field(default_factory=dict)


Requested = StateRequested | CheckpointRequested | RestoreRequested


@dataclass(frozen=True, slots=True)
class MasterTick:
    """Time passed."""


Event = (
    StoreRead
    | SessionChanged
    | CampaignEnded
    | TransactionFinished
    | ManifestWritten
    | RegistrationReceived
    | HeartbeatReceived
    | LinkClosed
    | Requested
    | MasterTick
)


# Effects.
@dataclass(frozen=True, slots=True)
class ReadStore:
    """Read all nodes of the topology; ``StoreRead`` follows."""


@dataclass(frozen=True, slots=True)
class Campaign:
    """Stand for election: create the ephemeral master node and raise the epoch in one transaction."""

    epoch: int
    epoch_version: int


@dataclass(frozen=True, slots=True)
class Resign:
    """Remove the master node if it still belongs to this session."""

    reason: str


@dataclass(frozen=True, slots=True)
class CommitTransaction:
    """Write plan, execution state and record, where given, in one transaction that also checks the own master node."""

    plan: PhysicalPlan | None
    plan_version: int
    execution: ExecutionState | None
    execution_version: int
    record: CheckpointRecord | None = None
    record_version: int = -1


@dataclass(frozen=True, slots=True)
class WriteManifest:
    """Write a manifest durably to the checkpoint storage; ``ManifestWritten`` follows."""

    manifest: Manifest


@dataclass(frozen=True, slots=True)
class RemoveOldCheckpoints:
    """Remove the files of checkpoints that are no longer needed (``checkpoints.py``)."""

    complete: int
    running: int
    keep: int


@dataclass(frozen=True, slots=True)
class SendPlan:
    """Send the plan on these links."""

    links: tuple[int, ...]
    plan: PhysicalPlan
    epoch: int


@dataclass(frozen=True, slots=True)
class SendHeartbeatReply:
    """Answer a heartbeat, or send a changed checkpoint command. ``holder`` is the bottleneck task."""

    link: int
    epoch: int
    holder: Bottleneck = NOBODY
    wish: CheckpointCommand = NO_WISH


@dataclass(frozen=True, slots=True)
class RejectStreamManager:
    """Tell the stream manager to leave, and close its link."""

    link: int
    reason: str


@dataclass(frozen=True, slots=True)
class CloseLinks:
    """Close these links, so that the stream managers look up the master again."""

    links: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class AnswerRequest:
    """Answer a request with a status or an error. ``final``: a retry at once would fail again."""

    number: int
    status: MasterStatus | None
    error: str = ""
    final: bool = False


@dataclass(frozen=True, slots=True)
class StartLeading:
    """This process leads from now on, with an empty store of metrics."""

    epoch: int


@dataclass(frozen=True, slots=True)
class TopologyKilled:
    """End the process with exit code 0."""

    reason: str


@dataclass(frozen=True, slots=True)
class LogNote:
    """Line for the log, and metric to count; either may be ""."""

    text: str
    metric: str = ""


@dataclass(frozen=True, slots=True)
class EmitEvent:
    """Event for the topology's history (``docs/how-to/history.md``).

    ``kind`` and ``what`` classify the event, ``text`` is for users and ``detail`` is JSON for programs.
    """

    kind: str
    what: str
    text: str
    detail: str = ""


Write = Campaign | Resign | CommitTransaction
StoreRequest = ReadStore | Write
Effect = (
    StoreRequest
    | WriteManifest
    | RemoveOldCheckpoints
    | SendPlan
    | SendHeartbeatReply
    | RejectStreamManager
    | CloseLinks
    | AnswerRequest
    | StartLeading
    | TopologyKilled
    | LogNote
    | EmitEvent
)
