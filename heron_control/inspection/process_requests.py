"""Requests to the processes of a topology, and the meaning of their answers and failures.

``asking.Asker`` sends them blocking, for commands and the API server; the tracker sends them on its event loop.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import grpc.aio

from heron_control.inspection.failing_tuples import COUNTED, counts_of
from heron_control.inspection.topology_status import HERON_SCHEDULER, ProcessReplies
from heron_control.schedulers.topology_folder import identity_in
from heron_runtime.failures import Unavailable
from heron_runtime.model.containers import TOPOLOGY_MASTER
from heron_runtime.model.records import ContainerLocation, MasterLocation, SchedulerLocation, TopologyRecord
from heron_runtime.net.identity import Identity
from heron_runtime.net.rpc import CONTAINER_SERVICE, MASTER_SERVICE, SCHEDULER_SERVICE, RpcService
from heron_runtime.wire.container import ContainerStatusRequest, SchedulerStatusRequest
from heron_runtime.wire.master import ExceptionsRequest, MasterStatus, MetricsRequest, StatusRequest

DEADLINE_SECS = 2.0
EXCEPTIONS = "exceptions"
COUNTS = "counts"


class ProcessUnreachable(Unavailable):
    """Raised if a process does not answer or refuses; ``code`` is gRPC's, None if it could not be called."""

    def __init__(self, message: str, code: grpc.StatusCode | None = None) -> None:
        super().__init__(message)
        self.code = code


@dataclass(frozen=True, slots=True)
class ProcessRequest:
    """Call to the process at ``location``; ``who`` is its name in errors."""

    location: MasterLocation | SchedulerLocation | ContainerLocation
    service: RpcService
    method: str
    request: Hashable
    who: str = "it"

    @property
    def address(self) -> str:
        """Host and port."""
        return f"{self.location.host}:{self.location.port}"

    def no_answer(self, error: Exception, deadline_secs: float) -> ProcessUnreachable:
        """Return the meaning of a gRPC error."""
        code, details = None, ""
        if isinstance(error, grpc.Call | grpc.aio.AioRpcError):
            code, details = error.code(), error.details()
        if code is grpc.StatusCode.DEADLINE_EXCEEDED or isinstance(error, TimeoutError):
            return ProcessUnreachable(
                f"{self.who} did not answer within {deadline_secs:g} s", grpc.StatusCode.DEADLINE_EXCEEDED
            )
        if code is grpc.StatusCode.UNAVAILABLE and details and "handshake" in details:
            return ProcessUnreachable(
                f"{self.who}: authentication failed: another process is listening at its address", code
            )
        if code is grpc.StatusCode.UNAVAILABLE:
            return ProcessUnreachable(f"{self.who}: no process is listening at its address", code)
        return ProcessUnreachable(details or (code.name if code else str(error)), code)


def to_master(record: TopologyRecord, method: str, request: Hashable) -> ProcessRequest:
    """Return a question to the topology master.

    Raises:
        ProcessUnreachable: The topology does not have an acting master.
    """
    if record.master is None:
        name = record.definition.name
        raise ProcessUnreachable(f"{name} has no topology master at this moment; try again in a few seconds")
    return ProcessRequest(record.master, MASTER_SERVICE, method, request, "the topology master")


def to_container(record: TopologyRecord, container: int, method: str, request: Hashable) -> ProcessRequest:
    """Return a question to a container's ``heron_container``.

    Raises:
        ProcessUnreachable: The container is not registered.
    """
    location = record.container(container)
    if location is None:
        raise ProcessUnreachable(f"container {container} of {record.definition.name} is not available at this moment")
    return ProcessRequest(location, CONTAINER_SERVICE, method, request, f"container {container}")


def status_requests(record: TopologyRecord, *, exceptions: bool = False) -> dict[str, ProcessRequest]:
    """Return a status question for each registered process."""
    questions: dict[str, ProcessRequest] = {}
    if record.scheduler is not None:
        request = SchedulerStatusRequest()
        questions[HERON_SCHEDULER] = ProcessRequest(
            record.scheduler, SCHEDULER_SERVICE, "Status", request, "the scheduler"
        )
    if record.master is not None:
        questions[TOPOLOGY_MASTER] = to_master(record, "Status", StatusRequest())
        if exceptions:
            questions[EXCEPTIONS] = to_master(record, "Exceptions", ExceptionsRequest())
        questions[COUNTS] = to_master(record, "Metrics", MetricsRequest(names=COUNTED))
    for location in record.containers:
        questions[_name(location)] = ProcessRequest(location, CONTAINER_SERVICE, "Status", ContainerStatusRequest())
    return questions


def answers_of(record: TopologyRecord, replies: Mapping[str, Any]) -> ProcessReplies:
    """Return the answers to ``status_requests``, or the exceptions in their place."""
    errors = {name: str(reply) for name, reply in replies.items() if isinstance(reply, BaseException)}
    master = replies.get(TOPOLOGY_MASTER)
    if record.master is not None and isinstance(master, MasterStatus) and master.epoch < record.master.epoch:
        over = f"the topology master that answers has epoch {master.epoch}; the store names {record.master.epoch}"
        errors[TOPOLOGY_MASTER] = f"{over}: it was replaced; try again in a few seconds"
    answers = {name: reply for name, reply in replies.items() if name not in errors}
    reported = answers.get(EXCEPTIONS)
    return ProcessReplies(
        answers.get(HERON_SCHEDULER),
        {c.container: answers[name] for c in record.containers if (name := _name(c)) in answers},
        answers.get(TOPOLOGY_MASTER),
        reported.exceptions if reported else (),
        errors,
        counts_of(answers[COUNTS]) if COUNTS in answers else {},
    )


def identity_of_record(record: TopologyRecord) -> Identity:
    """Return the topology's own key, which only its owner may read.

    ``Homes`` has verified the record. Another writer of the addresses in it can be reached with this key only if it
    holds the key as well.

    Raises:
        OSError: The key cannot be read.
        ValueError: The key is invalid.
    """
    return identity_in(Path(record.execution.home), record.definition.id)


def _name(location: ContainerLocation) -> str:
    return f"heron_container-{location.container}"
