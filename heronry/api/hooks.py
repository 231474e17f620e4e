"""Task hooks: user code that observes the events of a task.

Add a hook with ``context.add_task_hook`` in ``initialize``. Each event is one call; a task without hooks has no
overhead. Exceptions of a hook are logged and counted, and do not reach the component.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from heron_runtime.model.dataflow import FailReason

if TYPE_CHECKING:
    from heronry.api.context import TopologyContext
    from heronry.api.tuples import Tuple


@dataclass(frozen=True, slots=True)
class EmitInfo:
    """An emit. ``tup_id`` is the message id of a spout; ``direct_task`` the receiver of a direct emit."""

    values: tuple[Any, ...]
    stream: str
    task: int
    tup_id: Any = None
    direct_task: int | None = None


@dataclass(frozen=True, slots=True)
class SpoutAckInfo:
    """Completion of a tuple tree. ``complete_latency_ms`` is the time from emit to ack."""

    message_id: Any
    task: int
    complete_latency_ms: float


@dataclass(frozen=True, slots=True)
class SpoutFailInfo:
    """Failure of a tuple tree."""

    message_id: Any
    task: int
    fail_latency_ms: float
    reason: FailReason


@dataclass(frozen=True, slots=True)
class BoltExecuteInfo:
    """A processed tuple. ``execute_latency_ms`` is the time in user code."""

    tuple: Tuple
    task: int
    execute_latency_ms: float


@dataclass(frozen=True, slots=True)
class BoltAckInfo:
    """An ack by a bolt."""

    tuple: Tuple
    task: int
    process_latency_ms: float


@dataclass(frozen=True, slots=True)
class BoltFailInfo:
    """A failed tuple of a bolt."""

    tuple: Tuple
    task: int
    fail_latency_ms: float


class TaskHook:
    """Base of hooks: override the events of interest. Names and events are those of Heron's ``ITaskHook``."""

    def prepare(self, config: dict[str, Any], context: TopologyContext) -> None:
        """Prepare the hook. Called when it is added."""

    def clean_up(self) -> None:
        """Release resources. Called after the ``close`` of the component."""

    def emit(self, info: EmitInfo) -> None:
        """Observe an emit."""

    def spout_ack(self, info: SpoutAckInfo) -> None:
        """Observe the completion of a tuple tree. Called before the ``ack`` of the spout."""

    def spout_fail(self, info: SpoutFailInfo) -> None:
        """Observe the failure of a tuple tree. Called before the ``fail`` of the spout."""

    def bolt_execute(self, info: BoltExecuteInfo) -> None:
        """Observe a processed tuple. Called after ``process`` has returned."""

    def bolt_ack(self, info: BoltAckInfo) -> None:
        """Observe an ack."""

    def bolt_fail(self, info: BoltFailInfo) -> None:
        """Observe a failed tuple."""


ITaskHook = TaskHook
