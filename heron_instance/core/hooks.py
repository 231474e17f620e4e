"""The task hooks of one task. What a hook raises is logged and counted and goes no further."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from heron_runtime.model.dataflow import FailReason
from heronry.api.context import TopologyContext
from heronry.api.hooks import BoltAckInfo, BoltExecuteInfo, BoltFailInfo, EmitInfo, SpoutAckInfo, SpoutFailInfo
from heronry.api.tuples import Tuple

log = logging.getLogger(__name__)


class Hooks:
    """False while there is none. ``clock`` gives seconds."""

    def __init__(
        self, context: TopologyContext, task: int, count: Callable[[str, float], None], clock: Callable[[], float]
    ) -> None:
        self._hooks = context.hooks
        self._task = task
        self._count = count
        self._clock = clock

    def __bool__(self) -> bool:
        return bool(self._hooks)

    def spout_emits(self, row: tuple[Any, ...], tup_id: Any, stream: str, direct_task: int | None) -> bool:
        """A row filter that lets all pass."""
        self._tell("emit", EmitInfo(row, stream, self._task, tup_id, direct_task))
        return True

    def bolt_emits(self, row: tuple[Any, ...], anchors: Any, stream: str, direct_task: int | None) -> bool:
        """A row filter that lets all pass."""
        self._tell("emit", EmitInfo(row, stream, self._task, None, direct_task))
        return True

    def spout_ack(self, tup_id: Any, age_ms: float) -> None:
        """A tuple tree is complete."""
        self._tell("spout_ack", SpoutAckInfo(tup_id, self._task, age_ms))

    def spout_fail(self, tup_id: Any, age_ms: float, reason: FailReason) -> None:
        """A tuple tree has failed."""
        self._tell("spout_fail", SpoutFailInfo(tup_id, self._task, age_ms, reason))

    def bolt_execute(self, tup: Tuple, took_ms: float) -> None:
        """A tuple went through the bolt."""
        self._tell("bolt_execute", BoltExecuteInfo(tup, self._task, took_ms))

    def bolt_ack(self, tup: Tuple) -> None:
        """The bolt has acked a tuple."""
        self._tell("bolt_ack", BoltAckInfo(tup, self._task, self._age_ms(tup)))

    def bolt_fail(self, tup: Tuple) -> None:
        """The bolt has failed a tuple."""
        self._tell("bolt_fail", BoltFailInfo(tup, self._task, self._age_ms(tup)))

    def clean_up(self) -> None:
        """The component was closed."""
        for hook in self._hooks:
            try:
                hook.clean_up()
            except Exception:
                log.exception("task hook %s.clean_up raised", type(hook).__name__)

    def _tell(self, method: str, info: Any) -> None:
        for hook in self._hooks:
            try:
                getattr(hook, method)(info)
            except Exception:
                log.exception("task hook %s.%s raised", type(hook).__name__, method)
                self._count("__hook-exception-count", 1)

    def _age_ms(self, tup: Tuple) -> float:
        """Time since the tuple arrived; 0 for a tick."""
        arrived: float | None = getattr(tup.batch, "arrived_ms", None)
        return 0.0 if arrived is None else self._clock() * 1000 - arrived
