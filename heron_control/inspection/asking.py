"""Concurrent requests to the processes of a topology, each with a deadline, so a hung process delays no other."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from typing import Any

import grpc

from heron_control.inspection.questions import DEADLINE_SECS, NoAnswer, Question, answers_of, status_questions
from heron_control.inspection.topology_status import Answers
from heron_runtime.model.records import TopologyRecord
from heron_runtime.net.identity import Identity
from heron_runtime.net.rpc import RpcService, make_blocking_channel


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

    def query_all(self, record: TopologyRecord, exceptions: bool = False) -> Answers:
        """Return the status of scheduler, containers and master, as far as they answer in time."""
        questions = status_questions(record, exceptions=exceptions)
        replies = self._ask_all(questions, self._deadline_secs)
        # On a loaded machine a process may be slow but alive: ask once more, and wait longer.
        late = {name: question for name, question in questions.items() if _is_late(replies[name])}
        return answers_of(record, {**replies, **self._ask_all(late, 2 * self._deadline_secs)})

    def _ask_all(self, questions: Mapping[str, Question], deadline_secs: float) -> dict[str, Any]:
        """Return each answer, or a NoAnswer in its place."""
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
    return isinstance(reply, NoAnswer) and reply.code is grpc.StatusCode.DEADLINE_EXCEEDED
