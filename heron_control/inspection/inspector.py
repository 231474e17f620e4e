"""Questions and orders to the topologies of a cluster, through its state store and their processes.

It runs where the processes can be reached: in the ``heron`` command for the local cluster, in the API server for the
other clusters. Every request has a deadline. The topology master carries out the orders: ``set_state``,
``take_checkpoint``, ``restore``.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import grpc

from heron_control.inspection.checkpoints import storage_of
from heron_control.inspection.log_reader import read_local
from heron_control.inspection.process_requests import (
    DEADLINE_SECS,
    ProcessRequest,
    ProcessUnreachable,
    answers_of,
    identity_of_record,
    status_requests,
)
from heron_control.inspection.topology_status import (
    HERON_SCHEDULER,
    ProcessReplies,
    TopologyStatus,
    expected_processes,
    iso,
    topology_status,
)
from heron_control.progress import Progress, silent
from heron_control.schedulers.topology_folder import KEY_FILE, LOG_FILES, Homes, load_launch
from heron_runtime.failures import Failure, NotAllowed, NotFound, Unavailable, did_you_mean
from heron_runtime.launch import Launch
from heron_runtime.model.containers import containers_of, listed
from heron_runtime.model.ids import MASTER_CONTAINER
from heron_runtime.model.records import ExecutionState, TopologyRecord
from heron_runtime.model.settings import Keys, setting
from heron_runtime.model.topology import TopologyState
from heron_runtime.net.identity import Identity
from heron_runtime.net.rpc import CONTAINER_SERVICE, MASTER_SERVICE, RpcService, make_blocking_channel
from heron_runtime.state import topologies
from heron_runtime.state.store import StateStore, StoreError
from heron_runtime.state.topologies import NoSuchTopology
from heron_runtime.wire.container import FileData, ReadFile, SchedulerStatus
from heron_runtime.wire.master import (
    MasterStatus,
    MetricsRequest,
    RestoreState,
    SetState,
    StatusRequest,
    TakeCheckpoint,
)
from heronry.api.errors import topology_not_found

MAX_ASKED_FOR = 200  # maximum number of topologies read for a hint
AT_ONCE = 16  # number of topologies queried concurrently
MASTER_WAIT_SECS = 30.0
RETRY_SECS = 0.3
SINCE_THE_START = -1.0


@dataclass(frozen=True, slots=True)
class LoggedProcess:
    """Process that writes a log. ``component`` is empty for Heronry's own processes."""

    process: str
    component: str
    container: int


class Inspector:
    """Client of the topologies in one open store. Thread-safe; blocks.

    ``queue`` explains why the scheduler process of a topology does not answer: it waits to start, or has ended.
    """

    def __init__(
        self, store: StateStore, homes: Homes, queue: Callable[[Launch], SchedulerStatus | None] = lambda _: None
    ) -> None:
        self._store = store
        self._queue = queue
        self._homes = homes
        self._cluster = homes.cluster

    def find(self, name: str, role: str, environ: str) -> TopologyRecord:
        """Return the topology of this name, role and environment.

        Raises:
            NotFound: The topology does not run.
            NotAllowed: The topology belongs to another user.
            StoreError: The store is unavailable.
        """
        try:
            record = self._read(name)
        except NoSuchTopology:
            self._homes.check_store(self._store, role, environ, name)
            raise missing(self._store, name, self._cluster) from None
        check_place(record.execution, self._cluster, role, environ)
        return record

    def _read(self, name: str) -> TopologyRecord:
        return self._homes.believed(topologies.read_topology(self._store, name))

    def rows(self, covers: Callable[[str, str], bool]) -> list[dict[str, Any]]:
        """Return the rows of ``heron list`` for roles and environments that ``covers`` accepts.

        Raises:
            StoreError: The store is unavailable.
        """
        states = [s for s in topologies.list_topologies(self._store) if covers(s.role, s.environ)]
        with ThreadPoolExecutor(AT_ONCE) as pool:
            return list(pool.map(self._row, states))

    def _row(self, state: ExecutionState) -> dict[str, Any]:
        try:
            record: TopologyRecord | None = self._read(state.topology)
        except (StoreError, NotAllowed):
            record = None  # killed a moment ago, or damaged: listed with what is known
        return {
            "cluster": state.cluster,
            "role": state.role,
            "environ": state.environ,
            "topology": state.topology,
            "state": self._state(record) if record else "failing",
            "containers": len(record.packing.containers) if record else None,
            "tasks": len(record.packing.instances()) if record else None,
            "submitted_at": iso(state.submitted_at),
        }

    def _state(self, record: TopologyRecord) -> str:
        try:
            return self.status(record).state
        except Failure:
            return "failing"  # its folder is missing, so its processes cannot be asked

    def status(self, record: TopologyRecord, *, exceptions: bool = False) -> TopologyStatus:
        """Return the status that all processes report.

        Raises:
            Failure: The topology's key cannot be read.
        """
        launch = load_launch(Path(record.execution.home))
        answers = asker_of(record).query_all(record, exceptions)
        if answers.scheduler is None and launch is not None:
            answers = replace(answers, scheduler=self._queue(launch))
        status = topology_status(record, answers, time.time())
        if launch is None:
            return status
        return replace(status, code_user=setting(launch.settings, Keys.HERON_USER_CODE_USER) or "")

    def metrics(
        self, record: TopologyRecord, component: str = "", interval: float = SINCE_THE_START, wanted: Iterable[str] = ()
    ) -> dict[str, Any]:
        """Return the ``metrics_table.document`` of the last ``interval`` seconds.

        Raises:
            NotFound: The component is unknown.
            Unavailable: The topology master does not answer.
            RpcError: The master refuses.
        """
        from heron_control.inspection import metrics_table  # imported here, since other queries do not need sketches

        name = record.definition.name
        known = [spec.name for spec in record.definition.components]
        if component and component not in known and not component.startswith("__"):
            raise NotFound(f"{name} has no component {component!r}{did_you_mean(component, known)}")
        if record.master is None:
            raise Unavailable(f"{name} has no topology master at this moment", "Try again in a few seconds.")
        request = MetricsRequest(component, interval)
        reply = asker_of(record).call(record.master, MASTER_SERVICE, "Metrics", request)
        shown = {s.name: s.is_spout for s in record.definition.components if component in ("", s.name)}
        return metrics_table.document(name, reply, shown, wanted)

    def set_state(self, record: TopologyRecord, state: TopologyState, progress: Progress = silent) -> None:
        """Set the state and wait until the acting master has stored it.

        Raises:
            Unavailable: The topology master does not answer.
            NoSuchTopology: The topology was killed.
            RpcError: The master refuses.
        """
        self._order(record, "SetState", lambda epoch: SetState(state, epoch), progress)

    def take_checkpoint(
        self, record: TopologyRecord, wait_secs: float, progress: Progress = silent, *, hold: bool = False
    ) -> int:
        """Take a checkpoint and return the number of the last complete one.

        Args:
            record: The topology.
            wait_secs: How long to wait until it is complete; 0 to not wait.
            progress: Receives what is waited for.
            hold: Stay paused after the checkpoint, because another plan follows at once.

        Raises:
            UsageError: The topology is stateless.
            Failure: The checkpoint was cancelled; names the cause.
        """
        storage_of(record)
        done = self._order(
            record, "TakeCheckpoint", lambda epoch: TakeCheckpoint(wait_secs, epoch, hold), progress, wait_secs
        )
        return done.tasks_state.last.number

    def restore(
        self, record: TopologyRecord, checkpoint: int, progress: Progress = silent, *, repeat_output: bool = False
    ) -> tuple[int, int]:
        """Restore all tasks from a checkpoint; return the new generation and the checkpoint's number.

        ``checkpoint`` is 0 for the last complete one. An older one requires ``repeat_output``, because output may be
        repeated. Raises as ``take_checkpoint``.
        """
        storage_of(record)
        request = partial(RestoreState, checkpoint=checkpoint, repeat_output=repeat_output)
        now = self._order(record, "RestoreState", request, progress).tasks_state
        return now.generation, now.restore_from

    def master_status(self, record: TopologyRecord) -> MasterStatus:
        """Return the current status of the acting master.

        Raises:
            Unavailable: The topology master does not answer.
            RpcError: The master refuses.
        """
        if record.master is None:
            raise Unavailable(f"{record.definition.name} has no topology master at this moment", "Try again soon.")
        status: MasterStatus = asker_of(record).call(record.master, MASTER_SERVICE, "Status", StatusRequest())
        return status

    def _order(
        self,
        record: TopologyRecord,
        method: str,
        request: Callable[[int], object],
        progress: Progress,
        wait_secs: float = 0.0,
    ) -> MasterStatus:
        """Send an order with the master's epoch until the acting master has carried it out.

        A master that was just elected, or is being restarted, gets a little time.
        """
        deadline = time.monotonic() + max(MASTER_WAIT_SECS, wait_secs)
        asker = asker_of(record)
        while True:
            record = self._read(record.definition.name)
            if record.master is not None:
                try:
                    reply: MasterStatus = asker.call(
                        record.master, MASTER_SERVICE, method, request(record.master.epoch), wait_secs
                    )
                    return reply
                except grpc.RpcError as error:
                    _raise_unless_passing(error)
            if time.monotonic() > deadline:
                raise Unavailable(
                    f"{record.definition.name} has had no acting topology master for {MASTER_WAIT_SECS:g} s",
                    "`heron status` tells why; its container restarts it.",
                )
            progress("waiting for the topology master")
            time.sleep(RETRY_SECS)


def missing(store: StateStore, name: str, cluster: str) -> NotFound:
    """Return the error for an unknown topology, with a hint if it is a program variable."""
    from heronry.streamlet.online.locate import PROGRAM  # imported here, since few callers need streamlets

    known = [state.topology for state in topologies.list_topologies(store)]
    variables: dict[str, str] = {}
    for topology in known[:MAX_ASKED_FOR]:
        with suppress(StoreError):  # killed meanwhile, or damaged
            for spec in topologies.read_topology(store, topology).definition.components:
                variables[topology] = str(spec.config.get(PROGRAM, "")).rpartition(":")[2]
    return topology_not_found(name, cluster, known, variables)


def _raise_unless_passing(error: grpc.RpcError) -> None:
    """Raise a final error of the master, and errors that cannot be retried."""
    code = error.code() if isinstance(error, grpc.Call) else None
    if code is grpc.StatusCode.FAILED_PRECONDITION and isinstance(error, grpc.Call):
        raise Failure(error.details() or "the topology master refuses") from None
    if code not in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.ABORTED):
        raise error


def check_place(execution: ExecutionState, cluster: str, role: str, environ: str) -> None:
    """Check role and environment of a topology.

    Raises:
        NotFound: The topology runs for another role or environment.
    """
    if (role, environ) != (execution.role, execution.environ):
        place = f"{cluster}/{execution.role}/{execution.environ}"
        raise NotFound(
            f"topology {execution.topology!r} is not at {cluster}/{role}/{environ} but at {place}", f"Write {place}."
        )


def check_container(record: TopologyRecord, container: int) -> None:
    """Check that the topology has this container.

    Raises:
        NotFound: The container does not exist.
    """
    numbers = containers_of(record.packing, record.definition.config)
    if container not in numbers:
        raise NotFound(f"{record.definition.name} has no container {container}", f"It has {listed(numbers)}.")


def asker_of(record: TopologyRecord) -> Asker:
    """Return a client with the key in the topology's folder.

    Raises:
        NotAllowed: The folder belongs to another user.
        Failure: The key cannot be read.
    """
    file = Path(record.execution.home, KEY_FILE)
    try:
        return Asker(identity_of_record(record))
    except PermissionError as error:
        raise NotAllowed(f"{file}: {error.strerror}", "Only the user who submitted it may do this.") from error
    except ValueError as error:
        raise Failure(str(error), "Kill the topology and submit it again.") from error
    except OSError as error:
        name = record.definition.name
        raise Failure(f"{file}: {error.strerror}", f"{name}'s folder is missing; `heron kill` cleans up.") from error


def logged_processes(record: TopologyRecord) -> list[LoggedProcess]:
    """Return all processes that write a log."""
    expected = [LoggedProcess(name, component, n) for _, name, n, component, _ in expected_processes(record)]
    return [LoggedProcess(HERON_SCHEDULER, "", MASTER_CONTAINER), *expected]


class LogReader:
    """Reader of a topology's logs, through its containers or from disk if a container does not answer.

    A container that did not answer once is not asked again.
    """

    def __init__(self, record: TopologyRecord, progress: Progress = silent) -> None:
        self._asker = asker_of(record)
        self._progress = progress
        self._locations = {location.container: location for location in record.containers}
        folder = Path(record.execution.home, LOG_FILES)
        self._local = read_local(folder) if folder.is_dir() else None

    def read(self, container: int, path: str, offset: int, length: int) -> FileData:
        """Return a part of a log file, as ``ReadFile`` does.

        Raises:
            FileNotFoundError: The log does not exist.
            Unavailable: The container does not answer.
            RpcError: The container refuses.
        """
        location = self._locations.get(container)
        if location is not None:
            question = ReadFile(path, offset, length)
            try:
                reply: FileData = self._asker.call(location, CONTAINER_SERVICE, "ReadFile", question)
                return reply
            except grpc.RpcError as error:
                code = error.code() if isinstance(error, grpc.Call) else None
                if code is grpc.StatusCode.NOT_FOUND:
                    raise FileNotFoundError(2, "no such log", path) from error
                if self._local is None or code is grpc.StatusCode.INVALID_ARGUMENT:
                    raise
                self._progress(f"container {container} does not answer; reading its logs from the disk")
                del self._locations[container]
        if self._local is None:
            raise Unavailable(f"container {container} does not answer, and its logs are not on this machine")
        return self._local(path, offset, length)


class Asker:
    """Blocking client of the processes of one topology, with the topology's key."""

    def __init__(self, identity: Identity, deadline_secs: float = DEADLINE_SECS) -> None:
        self._identity = identity
        self._metadata = identity.metadata()
        self._deadline_secs = deadline_secs

    def call(self, location: Any, service: RpcService, method: str, request: object, wait_secs: float = 0.0) -> Any:
        """Call the process at ``location`` (host and port), which may wait before it answers.

        Raises:
            grpc.RpcError: The process does not answer.
        """
        with make_blocking_channel(f"{location.host}:{location.port}", self._identity) as channel:
            call = service.blocking_call(channel, method)
            return call(request, metadata=self._metadata, timeout=wait_secs + self._deadline_secs)

    def query_all(self, record: TopologyRecord, exceptions: bool = False) -> ProcessReplies:
        """Return the status of scheduler, containers and master, as far as they answer in time."""
        questions = status_requests(record, exceptions=exceptions)
        replies = self._ask_all(questions, self._deadline_secs)
        # On a loaded machine a process may be slow but alive: ask once more, and wait longer.
        late = {name: question for name, question in questions.items() if _is_late(replies[name])}
        return answers_of(record, {**replies, **self._ask_all(late, 2 * self._deadline_secs)})

    def _ask_all(self, questions: Mapping[str, ProcessRequest], deadline_secs: float) -> dict[str, Any]:
        """Return each answer, or ``ProcessUnreachable`` in its place."""
        replies: dict[str, Any] = {}
        with ExitStack() as channels:
            pending = {}
            for name, question in questions.items():
                channel = channels.enter_context(make_blocking_channel(question.address, self._identity))
                call: Any = question.service.blocking_call(channel, question.method)
                pending[name] = call.future(question.request, metadata=self._metadata, timeout=deadline_secs)
            for name, future in pending.items():
                try:
                    replies[name] = future.result()
                except grpc.RpcError as error:
                    replies[name] = questions[name].no_answer(error, deadline_secs)
        return replies


def _is_late(reply: object) -> bool:
    return isinstance(reply, ProcessUnreachable) and reply.code is grpc.StatusCode.DEADLINE_EXCEEDED
