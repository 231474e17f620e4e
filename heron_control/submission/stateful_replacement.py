"""Replacement of a running stateful topology (``heron submit --replace``): the new one continues its state.

::

    check: the new topology can restore the state
        ──▶ drain: pause, last checkpoint, all of it committed
        ──▶ name the checkpoint, and copy it for the new topology
        ──▶ kill the old topology, submit the new one

Theory of operation. Until the kill the old topology is only paused, so after any failure or interruption before it the
old one continues. After the kill the replacement must be completed, so Ctrl-C waits until the new one is started. If
the command itself is killed, one of three remains: the old topology (perhaps paused), the new one, or, between them,
the named checkpoint. The command to recover is printed before each of these steps. The named checkpoint is kept, so
that the old state can be restored.

The checkpoint is taken with paused spouts and held for some seconds, so nothing is read after it. Just before the kill
it is checked again that nothing has been committed after it.

*Draining* (also ``heron kill --drain``) ends a topology after it has processed all tuples it has read. Spouts are
paused first. A stateful topology then takes a last checkpoint and stays paused after it. Every task confirms
that the checkpoint is committed, so transactional sinks show the result of all tuples that were read. With acks, the
drain is complete when all tuples have been acked or failed. If the drain exceeds its timeout, the topology continues as
before and is not killed.
"""

from __future__ import annotations

import dataclasses
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import grpc

from heron_control.inspection.checkpoints import record_in
from heron_control.inspection.inspector import Inspector
from heron_control.progress import Progress
from heron_control.schedulers.topology_folder import load_launch
from heron_control.submission.checkpoint_adoption import CheckpointSource, check_reachable, empty_storage
from heron_control.submission.checkpoint_catalog import CheckpointCatalog
from heron_control.submission.submission import StartFrom, Submission
from heron_runtime.failures import Failure, Interrupted, InvalidTopology, Unavailable, UsageError
from heron_runtime.model.checkpoints import keeps_state
from heron_runtime.model.records import TopologyRecord
from heron_runtime.model.settings import Keys, setting
from heron_runtime.model.topology import TopologyState
from heron_runtime.state import topologies
from heron_runtime.state.store import StateStore, StoreError
from heron_runtime.state.topologies import NoSuchTopology
from heron_runtime.wire.master import MasterStatus

WITHOUT_STATE = "With --without-state the new topology starts empty, and the state is discarded."


class StatefulReplacement:
    """Replacement of one running topology. ``note`` receives recovery commands, a line at a time."""

    def __init__(
        self, checkpoints: CheckpointCatalog, store: StateStore, inspector: Inspector, record: TopologyRecord,
        submission: Submission, note: Callable[[str], None],
    ) -> None:  # fmt: skip
        assert submission.handover is not None
        self._checkpoints = checkpoints
        self._store = store
        self._inspector = inspector
        self._record = record
        self._definition = submission.definition
        self._handover = submission.handover
        self._note = note
        self._ran = record.execution.state is TopologyState.RUNNING
        self._drained = 0  # number of the checkpoint from which the new topology continues
        self._label = ""
        stored = record.execution
        self.name = stored.topology
        self._place = f"{stored.cluster}/{stored.role}/{stored.environ}/{stored.topology}"
        self._where = f"{stored.cluster}/{stored.role}/{stored.environ} {stored.topology}"

    @property
    def reference(self) -> str:
        """Reference for ``--from-checkpoint``."""
        return f"{self._place}@{self._label}"

    def check(self) -> None:
        """Check the replacement before anything changes.

        Raises:
            InvalidTopology: The new topology cannot restore the state.
            Failure: The topology cannot be replaced now.
        """
        home = Path(self._record.execution.home)
        launch = load_launch(home)
        if launch is not None:
            check_reachable(launch, home, self._definition)
        if not keeps_state(self._definition.config):
            raise InvalidTopology(
                f"{self.name} keeps state, and its replacement keeps none: nothing was changed, it continues",
                f"Set topology.reliability.mode = EFFECTIVELY_ONCE. {WITHOUT_STATE}",
            )
        if setting(self._definition.config, Keys.TOPOLOGY_STATEFUL_CHECKPOINT_STORAGE):  # the default is a new folder
            empty_storage(self._definition, home)
        complete = record_in(self._store, self.name).complete
        if complete:
            self._find(f"{self._place}@{complete}")

    def take(self, progress: Progress) -> CheckpointSource:
        """Drain the topology and name its last checkpoint.

        After an error the topology continues, at the latest after ``give_up``. Also raises what keeping the checkpoint
        does.

        Raises:
            NotDrained: The timeout has passed.
            Interrupted: The user has interrupted the drain.
        """
        self._note(f"{self.name} is drained; if this command is killed now, `heron activate {self._where}`")
        try:
            number = drain(self._inspector, self._record, self._handover.seconds, progress)
        except NotDrained as error:
            raise NotDrained(error.message, f"Fix the cause and try again. {WITHOUT_STATE}") from error
        self._drained = number
        progress(f"keeping checkpoint {number}")
        self._label = self._checkpoints.keep(self._record, number)
        checkpoint = self._find(self.reference)
        generation = record_in(self._store, self.name).generation
        return dataclasses.replace(checkpoint, generation=max(checkpoint.generation, generation))

    def check_still(self) -> None:
        """Check just before the kill that the checkpoint is still the newest.

        Raises:
            Failure: A newer checkpoint exists.
        """
        complete = record_in(self._store, self.name).complete
        if complete != self._drained:
            raise Failure(
                f"checkpoint {complete} of {self.name} became complete while {self._drained} was copied, and what it "
                "shows would be shown again",
                "Set topology.stateful.checkpoint.interval.secs of what runs to more than copying takes "
                "(`heron update --runtime-config`), and try again.",
            )
        self._note(
            f"the state of {self.name} is kept as checkpoint {self._label}; if the new one does not start, `heron "
            f"submit … --from-checkpoint {self.reference}` continues from it"
        )

    def give_up(self, progress: Progress) -> None:
        """Let the old topology continue and remove the named checkpoint."""
        if not self._drained:
            return
        progress(f"{self.name} continues")
        if self._label:
            self._checkpoints.forget(self._record, self._label)
        if not self._ran:
            return
        try:
            self._inspector.set_state(self._record, TopologyState.RUNNING, progress)
        except (Failure, grpc.RpcError) as error:
            self._note(f"{self.name} is still paused ({error}): `heron activate {self._where}`")

    def failed(self, error: Exception, progress: Progress) -> Exception:
        """Return the error to raise after a failed submission. The old topology continues if it still exists."""
        try:
            stored = topologies.read_topology(self._store, self.name).execution
            if stored.topology_id == self._record.execution.topology_id:
                self.give_up(progress)
                return error
        except (NoSuchTopology, StoreError):
            pass
        return Failure(
            f"{self.name} has ended, and what was submitted in its place does not run: {error}",
            f"Its state is kept: `heron submit … --from-checkpoint {self.reference}` continues from it.",
        )

    def _find(self, reference: str) -> CheckpointSource:
        try:
            return self._checkpoints.find(StartFrom(reference, self._handover.may_drop), self._definition)
        except InvalidTopology as error:
            raise InvalidTopology(f"{error.message}: nothing was changed, {self.name} continues", error.cure) from error


def plan_replacement(
    checkpoints: CheckpointCatalog,
    store: StateStore,
    inspector: Inspector,
    submission: Submission,
    note: Callable[[str], None],
) -> StatefulReplacement | None:
    """Return the checked replacement if the replaced topology is stateful, otherwise None.

    Raises as ``StatefulReplacement.check``, and NotFound for a topology of another user.
    """
    record = inspector.find(submission.definition.name, submission.role, submission.environ)
    if not keeps_state(record.definition.config):
        return None
    upgrade = StatefulReplacement(checkpoints, store, inspector, record, submission, note)
    upgrade.check()
    return upgrade


@contextmanager
def defer_interrupt(name: str) -> Iterator[None]:
    """Delay Ctrl-C until the end of the block, then raise Interrupted. Does nothing outside the main thread."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    looks: list[int] = []

    def later(number: int, _: FrameType | None) -> None:
        looks.append(number)

    before = signal.signal(signal.SIGINT, later)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
    if looks:
        raise Interrupted(f"interrupted after the point of no return: {name} is replaced, and continues to start")


POLL_SECS = 0.2
HEARTBEATS = 3  # required time without tuples in flight: heartbeats carry the count, and the pause takes time to spread


class NotDrained(Failure):
    """Raised when draining exceeds its timeout; nothing was killed."""


def drain(inspector: Inspector, record: TopologyRecord, timeout_secs: float, progress: Progress) -> int:
    """Drain a topology and return the number of its last checkpoint (0 if stateless).

    On an error the topology returns to its earlier state. Also raises what a checkpoint raises.

    Raises:
        UsageError: The topology cannot be drained.
        NotDrained: The timeout has passed.
        Interrupted: The user has interrupted the drain.
    """
    name, config = record.definition.name, record.definition.config
    mode = setting(config, Keys.TOPOLOGY_RELIABILITY_MODE)
    if mode == "ATMOST_ONCE":
        raise UsageError(
            f"nothing tells when the tuples of {name} are through: its topology.reliability.mode is ATMOST_ONCE",
            "Use `heron deactivate`, wait, and `heron kill`.",
        )
    ran = record.execution.state is TopologyState.RUNNING
    deadline = time.monotonic() + timeout_secs
    try:
        inspector.set_state(record, TopologyState.PAUSED, progress)
        if not keeps_state(config):
            heartbeat_secs = setting(_settings(record), Keys.HERON_HEARTBEAT_INTERVAL_MS) / 1000
            _wait(inspector, record, deadline, progress, _in_flight, 1 + int(HEARTBEATS * heartbeat_secs / POLL_SECS))
            return 0
        progress(f"{name} takes its last checkpoint")
        number = inspector.take_checkpoint(record, timeout_secs, progress, hold=True)
        _wait(inspector, record, deadline, progress, _unconfirmed, 1)
        return number
    except (Failure, grpc.RpcError, KeyboardInterrupt) as error:
        if ran:
            inspector.set_state(record, TopologyState.RUNNING, progress)
        again = "it resumes" if ran else "it stays paused"
        if isinstance(error, KeyboardInterrupt):
            raise Interrupted(f"interrupted: {name} is not killed, {again}") from None
        raise NotDrained(
            f"{name} is not drained, and not killed: {error}; {again}", "`heron kill` without --drain ends it."
        ) from error


def _settings(record: TopologyRecord) -> Mapping[str, Any]:
    launch = load_launch(Path(record.execution.home))
    return launch.settings if launch is not None else {}


def _in_flight(status: MasterStatus) -> str:
    tuples = sum(manager.flow.in_flight for manager in status.stream_managers)
    return f"{tuples} tuples are in flight" if tuples else ""


def _unconfirmed(status: MasterStatus) -> str:
    tasks = status.tasks_state.unconfirmed
    return f"task {', '.join(map(str, tasks))} has not committed yet" if tasks else ""


def _wait(
    inspector: Inspector, record: TopologyRecord, deadline: float, progress: Progress,
    describe_remainder: Callable[[MasterStatus], str], looks: int,
) -> None:  # fmt: skip
    """Wait until nothing remains in this number of consecutive looks."""
    done = 0
    while done < looks:
        remainder = describe_remainder(inspector.master_status(record))
        done = 0 if remainder else done + 1
        if remainder and time.monotonic() > deadline:
            raise Unavailable(f"{remainder}, and its time is over")
        progress(remainder or "nothing is left")
        time.sleep(POLL_SECS)
