"""Task hooks: code that watches what a task does, without changing it.

A hook is given to ``context.add_task_hook`` in ``initialize``. Each event below is one call; a task without hooks pays
nothing. An exception raised by a hook is logged and counted and does not reach the component.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from heron_runtime.model.dataflow import FailReason

if TYPE_CHECKING:
    from heronry.api.tuples import Tuple


@dataclass(frozen=True, slots=True)
class EmitInfo:
    """An emit. ``tup_id`` is a spout's message id; ``direct_task`` that of a direct emit."""

    values: tuple[Any, ...]
    stream: str
    task: int
    tup_id: Any = None
    direct_task: int | None = None


@dataclass(frozen=True, slots=True)
class SpoutAckInfo:
    """A tuple tree is complete. ``complete_latency_ms`` runs from emit to ack."""

    message_id: Any
    task: int
    complete_latency_ms: float


@dataclass(frozen=True, slots=True)
class SpoutFailInfo:
    """A tuple tree has failed."""

    message_id: Any
    task: int
    fail_latency_ms: float
    reason: FailReason


@dataclass(frozen=True, slots=True)
class BoltExecuteInfo:
    """A bolt has processed a tuple; ``execute_latency_ms`` is the time inside its code."""

    tuple: Tuple
    task: int
    execute_latency_ms: float


@dataclass(frozen=True, slots=True)
class BoltAckInfo:
    """A bolt has acked a tuple."""

    tuple: Tuple
    task: int
    process_latency_ms: float


@dataclass(frozen=True, slots=True)
class BoltFailInfo:
    """A bolt has failed a tuple."""

    tuple: Tuple
    task: int
    fail_latency_ms: float


class TaskHook:
    """Override what you want to see. Names and events are Heron's ``ITaskHook``."""

    def prepare(self, config: dict[str, Any], context: Any) -> None:
        """Called when the hook is added."""

    def clean_up(self) -> None:
        """Called after the component's ``close``."""

    def emit(self, info: EmitInfo) -> None:
        """The component has emitted."""

    def spout_ack(self, info: SpoutAckInfo) -> None:
        """Called before the spout's ``ack``."""

    def spout_fail(self, info: SpoutFailInfo) -> None:
        """Called before the spout's ``fail``."""

    def bolt_execute(self, info: BoltExecuteInfo) -> None:
        """The bolt's ``process`` has returned."""

    def bolt_ack(self, info: BoltAckInfo) -> None:
        """The bolt has acked."""

    def bolt_fail(self, info: BoltFailInfo) -> None:
        """The bolt has failed a tuple."""


ITaskHook = TaskHook
