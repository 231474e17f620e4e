"""Facts that reach the master's core and effects it asks of its shell."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import Enum

from heron_runtime.model.checkpoints import NO_WISH, CheckpointRecord, CheckpointWish, Manifest
from heron_runtime.model.generations import NO_CHECKPOINT
from heron_runtime.model.plan import PackingPlan, PhysicalPlan
from heron_runtime.model.stored import ExecutionState, MasterLocation
from heron_runtime.model.topology import TopologyDefinition, TopologyState
from heron_runtime.wire.master import NOBODY, Heartbeat, Holder, MasterStatus, Register


class Session(Enum):
    """The store session, as the core sees it."""

    CONNECTED = "connected"
    SUSPENDED = "suspended"
    LOST = "lost"


class WriteResult(Enum):
    """How a transaction ended. UNKNOWN: the store did not answer; it may or may not have happened.

    REFUSED: a node or version was not as expected. NOT_OWNER: the master node is not this session's.
    """

    DONE = "done"
    REFUSED = "refused"
    NOT_OWNER = "not owner"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Stored:
    """What the store holds about the topology, read together; versions are -1 where the node is absent.

    ``complete``, where state is kept: the manifest of the last complete checkpoint, which lies among its files; or
    ``storage_fault`` says why it cannot be read.
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

    def with_written(self, written: StorePlan, ended: StoreEnded, complete: Manifest | None) -> Stored:
        """What it holds after this transaction; ``complete``, if that was about checkpoints."""
        found = self
        if written.execution is not None:
            found = replace(found, execution=written.execution, execution_version=ended.execution_version)
        if written.record is not None and complete is not None:
            found = replace(found, record=written.record, record_version=ended.record_version)
            found = replace(found, complete=complete, storage_fault="")
        if written.plan is not None:
            found = replace(found, plan=written.plan, plan_version=ended.plan_version)
        return found


# Facts.
@dataclass(frozen=True, slots=True)
class Read:
    """The store was read."""

    stored: Stored


@dataclass(frozen=True, slots=True)
class SessionChanged:
    """The store session is in another state."""

    session: Session


@dataclass(frozen=True, slots=True)
class CampaignEnded:
    """The transaction of ``Campaign`` ended."""

    epoch: int
    result: WriteResult


@dataclass(frozen=True, slots=True)
class StoreEnded:
    """The transaction of ``StorePlan`` ended; versions are those of the nodes after it."""

    result: WriteResult
    plan_version: int = -1
    execution_version: int = -1
    record_version: int = -1


@dataclass(frozen=True, slots=True)
class ManifestWritten:
    """``WriteManifest`` of this checkpoint ended; ``why`` it could not be written, or ""."""

    checkpoint: int
    why: str = ""


@dataclass(frozen=True, slots=True)
class Registered:
    """A stream manager registered on a link."""

    link: int
    message: Register


@dataclass(frozen=True, slots=True)
class Heard:
    """A heartbeat arrived."""

    link: int
    message: Heartbeat


@dataclass(frozen=True, slots=True)
class LinkClosed:
    """A stream manager's connection ended."""

    link: int


@dataclass(frozen=True, slots=True)
class StateRequested:
    """Somebody wants RUNNING or PAUSED and waits for the ``Answer`` of the same number. ``epoch``: of the master he
    asks, as far as he knows."""

    number: int
    state: TopologyState
    epoch: int = 0


@dataclass(frozen=True, slots=True)
class CheckpointRequested:
    """Somebody wants a checkpoint now, and waits for the ``Answer`` of this number until it is complete, or cancelled;
    if he does not ``wait`` he is answered at once. ``hold``: nobody shall go on behind it, for another plan comes."""

    number: int
    wait: bool
    epoch: int = 0
    hold: bool = False


@dataclass(frozen=True, slots=True)
class RestoreRequested:
    """Somebody wants all tasks to go back to the last complete checkpoint, and waits for ``Answer``; or to this older
    ``checkpoint``, of the ``manifests`` that are there (None: cannot be read), and then with ``repeat_output``."""

    number: int
    epoch: int = 0
    checkpoint: int = NO_CHECKPOINT
    repeat_output: bool = False
    manifests: Mapping[int, Manifest | None] = field(default_factory=dict)


Requested = StateRequested | CheckpointRequested | RestoreRequested


@dataclass(frozen=True, slots=True)
class Tick:
    """Time passed."""


Event = (
    Read
    | SessionChanged
    | CampaignEnded
    | StoreEnded
    | ManifestWritten
    | Registered
    | Heard
    | LinkClosed
    | Requested
    | Tick
)


# Effects.
@dataclass(frozen=True, slots=True)
class ReadStore:
    """Read everything and say so with ``Read``."""


@dataclass(frozen=True, slots=True)
class Campaign:
    """Stand for election in one transaction: make the ephemeral master node, raise the epoch from its version."""

    epoch: int
    epoch_version: int


@dataclass(frozen=True, slots=True)
class Resign:
    """Remove the master node, if it is still this session's own."""

    reason: str


@dataclass(frozen=True, slots=True)
class StorePlan:
    """One transaction that also checks the own master node: of plan, execution state and record, those given."""

    plan: PhysicalPlan | None
    plan_version: int
    execution: ExecutionState | None
    execution_version: int
    record: CheckpointRecord | None = None
    record_version: int = -1


@dataclass(frozen=True, slots=True)
class WriteManifest:
    """Write it among the checkpoints' files, so that it is on disk, and say so with ``ManifestWritten``."""

    manifest: Manifest


@dataclass(frozen=True, slots=True)
class RemoveOld:
    """Remove the files of checkpoints that nobody needs any more (``checkpoints.py``)."""

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
class Acknowledge:
    """Answer a heartbeat, or say unasked what is wanted now. ``holder``: the task that most waits for."""

    link: int
    epoch: int
    holder: Holder = NOBODY
    wish: CheckpointWish = NO_WISH


@dataclass(frozen=True, slots=True)
class Refuse:
    """Tell the stream manager to leave, and close its link."""

    link: int
    reason: str


@dataclass(frozen=True, slots=True)
class CloseLinks:
    """Close these links: the stream managers shall look for the master anew."""

    links: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Answer:
    """Answer a request: a status, or an error that says what to do. ``final``: to ask again at once is of no use."""

    number: int
    status: MasterStatus | None
    error: str = ""
    final: bool = False


@dataclass(frozen=True, slots=True)
class Lead:
    """This process leads from now on, with an empty memory of metrics."""

    epoch: int


@dataclass(frozen=True, slots=True)
class TopologyKilled:
    """End with exit code 0."""

    reason: str


@dataclass(frozen=True, slots=True)
class Note:
    """A line for the log, and a metric to count (either may be "")."""

    text: str
    metric: str = ""


@dataclass(frozen=True, slots=True)
class Happened:
    """Something for the topology's history (docs/history.md). ``kind`` and ``what`` say what it is like; ``text`` is
    for people, ``detail`` JSON for programs."""

    kind: str
    what: str
    text: str
    detail: str = ""


Write = Campaign | Resign | StorePlan
StoreRequest = ReadStore | Write
Effect = (
    StoreRequest
    | WriteManifest
    | RemoveOld
    | SendPlan
    | Acknowledge
    | Refuse
    | CloseLinks
    | Answer
    | Lead
    | TopologyKilled
    | Note
    | Happened
)
