"""Asking the processes of a topology, all at once and with a deadline: nobody who hangs delays the others' answers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, TypeVar

import grpc

from heronry.inspection.topology_status import HERON_SCHEDULER, TOPOLOGY_MASTER, Answers
from heronry.net.rpc import Service, credentials, make_blocking_channel
from heronry.net.services import CONTAINER_SERVICE, MASTER_SERVICE, SCHEDULER_SERVICE
from heronry.state.topologies import TopologyRecord
from heronry.wire.container import ContainerStatusRequest, SchedulerStatusRequest
from heronry.wire.master import ExceptionsRequest, StatusRequest

DEADLINE_SECS = 2.0
T = TypeVar("T")


class Asker:
    """Calls processes of one topology with its secret."""

    def __init__(self, secret: str, topology_id: str, deadline_secs: float = DEADLINE_SECS) -> None:
        self._metadata = credentials(secret, topology_id)
        self.deadline_secs = deadline_secs

    def call(self, location: Any, service: Service, method: str, request: object) -> Any:
        """One call to whoever listens at ``location`` (with host and port). Raises grpc.RpcError."""
        with self.connection(location, service) as ask:
            return ask(method, request)

    @contextmanager
    def connection(self, location: Any, service: Service) -> Iterator[Callable[..., Any]]:
        """Several calls over one channel: ``ask(method, request)``."""
        with make_blocking_channel(f"{location.host}:{location.port}") as channel:

            def ask(method: str, request: object, deadline_secs: float | None = None) -> Any:
                call = service.blocking_call(channel, method)
                return call(request, metadata=self._metadata, timeout=deadline_secs or self.deadline_secs)

            yield ask

    def everybody(self, record: TopologyRecord, exceptions: bool = False) -> Answers:
        """The status of scheduler, containers and master, as far as they answer within the deadline."""
        questions: dict[str, tuple[Any, Service, str, object]] = {}
        if record.scheduler is not None:
            questions[HERON_SCHEDULER] = (record.scheduler, SCHEDULER_SERVICE, "Status", SchedulerStatusRequest())
        if record.master is not None:
            questions[TOPOLOGY_MASTER] = (record.master, MASTER_SERVICE, "Status", StatusRequest())
            if exceptions:
                questions["exceptions"] = (record.master, MASTER_SERVICE, "Exceptions", ExceptionsRequest())
        for location in record.containers:
            name = f"heron_container-{location.container}"
            questions[name] = (location, CONTAINER_SERVICE, "Status", ContainerStatusRequest())
        replies, errors, late = self._ask_all(questions, self.deadline_secs)
        if late:  # on a machine under load, being slow is not being dead: ask once more, and wait longer
            again, still, _ = self._ask_all({name: questions[name] for name in late}, 2 * self.deadline_secs)
            replies |= again
            errors = {name: text for name, text in errors.items() if name not in again} | still
        reported = replies.get("exceptions")
        return Answers(
            replies.get(HERON_SCHEDULER),
            {c.container: replies[n] for c in record.containers if (n := f"heron_container-{c.container}") in replies},
            replies.get(TOPOLOGY_MASTER),
            reported.exceptions if reported else (),
            errors,
        )

    def _ask_all(
        self, questions: dict[str, tuple[Any, Service, str, object]], deadline_secs: float
    ) -> tuple[dict[str, Any], dict[str, str], list[str]]:
        """Replies, reasons for those that failed, and who did not answer within the deadline."""
        replies: dict[str, Any] = {}
        errors: dict[str, str] = {}
        late: list[str] = []
        with ExitStack() as channels:
            pending = {}
            for name, (location, service, method, request) in questions.items():
                channel = channels.enter_context(make_blocking_channel(f"{location.host}:{location.port}"))
                call: Any = service.blocking_call(channel, method)
                pending[name] = call.future(request, metadata=self._metadata, timeout=deadline_secs)
            for name, future in pending.items():
                try:
                    replies[name] = future.result()
                except grpc.RpcError as error:
                    errors[name] = reason(error, deadline_secs)
                    if isinstance(error, grpc.Call) and error.code() is grpc.StatusCode.DEADLINE_EXCEEDED:
                        late.append(name)
        return replies, errors, late


def reason(error: grpc.RpcError, deadline_secs: float) -> str:
    """Why a call failed, in a few words."""
    code = error.code() if isinstance(error, grpc.Call) else None
    if code is grpc.StatusCode.DEADLINE_EXCEEDED:
        return f"it did not answer within {deadline_secs:g} s"
    if code is grpc.StatusCode.UNAVAILABLE:
        return "nobody answers at its address"
    details = error.details() if isinstance(error, grpc.Call) else ""
    return details or str(code or error)
