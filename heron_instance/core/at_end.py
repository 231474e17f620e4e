"""Whether a spout's work is done: it has said that nothing is left to read, and what it has read is through.

Theory of operation. A spout over a bounded source says so (``Spout.at_end``). It is asked after calls of ``next_tuple``
that had nothing, while nothing of it waits to be sent and no tuple is in flight. Where state is kept its work is done
once a checkpoint is complete whose snapshot was taken after that: then nothing will ever be read again. A tuple that
comes after all takes it back.
"""

from __future__ import annotations

from heron_instance.core.task import Task
from heron_runtime.wire.container import AT_END


class AtEnd:
    """Of one spout task, in one life of its executor."""

    def __init__(self, task: Task) -> None:
        self._task = task
        self._saved: int | None = None  # the newest snapshot when the end was reached
        self.doing = ""  # what the heartbeat says of it; read by the thread of the loop, too

    def left(self) -> None:
        """It has emitted, or something of it is on its way."""
        self._saved = None
        self.doing = ""

    def look(self, idle: bool) -> None:
        """It had nothing to emit. ``idle``: nothing of it is on its way."""
        task, stateful = self._task, self._task.stateful
        try:
            with task.user_code("at_end"):
                ended = idle and task.component.at_end()
        except Exception as error:
            task.errors.raised(error, "at_end")
            ended = False
        if not ended:
            self.left()
        elif stateful is None:
            self.doing = AT_END
        elif self._saved is None:
            self._saved = stateful.saved
        else:
            self.doing = AT_END if stateful.told_complete > self._saved else ""
