"""Asking the processes of a topology, all at once and with a deadline: nobody who hangs delays the others' answers."""

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
    """Calls processes of one topology, with its key. Blocks."""

    def __init__(self, identity: Identity, deadline_secs: float = DEADLINE_SECS) -> None:
        self._identity = identity
        self._metadata = identity.metadata()
        self._deadline_secs = deadline_secs

    def call(self, location: Any, service: RpcService, method: str, request: object, wait_secs: float = 0.0) -> Any:
        """One call to whoever listens at ``location`` (with host and port), who may wait for so long before it answers.
        Raises grpc.RpcError."""
        with make_blocking_channel(f"{location.host}:{location.port}", self._identity) as channel:
            call = service.blocking_call(channel, method)
            return call(request, metadata=self._metadata, timeout=wait_secs + self._deadline_secs)

    def everybody(self, record: TopologyRecord, exceptions: bool = False) -> Answers:
        """The status of scheduler, containers and master, as far as they answer within the deadline."""
        questions = status_questions(record, exceptions=exceptions)
        replies = self._ask_all(questions, self._deadline_secs)
        # On a machine under load, being slow is not being dead: ask once more, and wait longer.
        late = {name: question for name, question in questions.items() if _is_late(replies[name])}
        return answers_of(record, {**replies, **self._ask_all(late, 2 * self._deadline_secs)})

    def _ask_all(self, questions: Mapping[str, Question], deadline_secs: float) -> dict[str, Any]:
        """What each answers, or NoAnswer in its place."""
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
