"""Failed records: each is put aside, reported and counted once, so that the others are processed.

A block in which a record fails is *sifted*: it is halved until failing records are isolated. Those are written to
``failed/`` in the topology's folder, one line each (``heronry.streamlet.aside``), in a file for each checkpoint and
task that becomes visible with the checkpoint. They are counted in ``failed-record-count``. All other records are
processed.

The failure is raised to the engine instead, and all tasks return to the last checkpoint, in three cases: all of the
first records fail, the limit of the policy is exceeded, or the policy is to fail.

The unit that is put aside is the input of the component as a whole: a line, if one of its words fails (``failed_on``:
the word).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, MutableMapping
from typing import Any

from heron_runtime.model.keys import UnsupportedKey
from heronry.api.component import Bolt
from heronry.api.metrics import CountMetric
from heronry.streamlet.aside import MAX_FAILED_ON_CHARACTERS, MOST, TooManyFailures, failure_line, policy_of
from heronry.streamlet.errors import StepFailed, shown
from heronry.streamlet.online.block import Block
from heronry.streamlet.online.writers import LinesWriter, TaskOf

LOGGED = 10  # number of failures logged one by one; then one in a thousand
RECORD_FAILURES = (StepFailed, UnsupportedKey)  # caused by the record, not by a disk or a connection
PUT = "aside"  # key in the task's state: number of records put aside
PASSED = "passed"  # key in the task's state: True once a record was processed
FIRST = 100  # if this many first records all fail, the program is wrong rather than its data


def _nowhere(_: int) -> str:
    return ""


class FailedRecordWriter(LinesWriter):
    """Writer of the failed records of one task. ``state`` is the task's own state."""

    suffix = ".jsonl"

    def __init__(
        self, bolt: Bolt, config: Mapping[str, Any], stage: str, task: TaskOf, state: MutableMapping[Any, Any],
        count: CountMetric,
    ) -> None:  # fmt: skip
        super().__init__(stage, task.folder / "failed", task)
        self._log = bolt.log
        self._state = state
        self.policy = policy_of(config)
        self.count = count

    def run(self, block: Block, run: Callable[[Block], None], where: Callable[[int], str] = _nowhere) -> None:
        """Run the block, and put aside the records that fail.

        Errors that are not caused by a record are raised. If the policy is to fail, all errors are raised.

        Args:
            block: The records.
            run: Function that processes a block.
            where: Function that returns the place of the record with this index.
        """
        try:
            run(block.copied() if self.policy.aside else block)  # a retry needs the original records
        except RECORD_FAILURES:
            if not self.policy.aside:
                raise
            self.sift(block, run, where)
        else:
            self.passed(len(block))

    def passed(self, records: int) -> None:
        """Note that a number of records was processed."""
        if records and PASSED not in self._state:
            self._state[PASSED] = True

    def sift(self, block: Block, run: Callable[[Block], None], where: Callable[[int], str] = _nowhere) -> None:
        """Run a block that may contain failing records, halving it until they are isolated.

        Each run gets copies, because functions may have changed their records in place before one failed.
        """
        parts = [(0, block)]
        while parts:
            first, part = parts.pop()
            try:
                run(part.copied())
                self.passed(len(part))
            except RECORD_FAILURES as error:
                size = len(part)
                if size <= 1:
                    self.put(part.records[0] if size else None, error, where(first) if size else "")
                    continue
                half = size // 2
                parts += [(first + half, part.picked(list(range(half, size)))), (first, part.picked(list(range(half))))]

    def put(self, record: Any, error: BaseException, where: str = "") -> None:
        """Put a record aside.

        Raises:
            TooManyFailures: The limit of the policy is reached, or all of the first records have failed.
            BaseException: The error itself, if the policy is to fail.
        """
        if not self.policy.aside:
            raise error
        cause = error.__cause__ or error
        step, failed_on = (error.step, error.record) if isinstance(error, StepFailed) else (self._name, record)
        already = self._state.get(PUT, 0)
        if already >= self.policy.most:
            raise TooManyFailures(
                f"task {self._task.number} of {self._name} has put {already} records aside, as many as {MOST} allows; "
                f"step {step!r} failed on {shown(failed_on)}: {cause!r}"
            ) from error
        if already + 1 >= FIRST and PASSED not in self._state:
            raise TooManyFailures(
                f"all of the first {FIRST} records of task {self._task.number} of {self._name} failed; step {step!r} "
                f"failed on {shown(failed_on)}: {cause!r}",
                "Look at the step: a misspelt field or a wrong format makes every record fail.",
            ) from error
        self.count.incr()
        self._state[PUT] = already + 1
        if already < LOGGED or already % 1000 == 0:
            place = f" of {where}" if where else ""
            self._log.error(
                "step %r: the record %s%s is put aside, into %s (%d so far): %r",
                step, shown(failed_on), place, self._staging.root, already + 1, cause,
            )  # fmt: skip
        self.take(failure_line(step, where, record, shown(failed_on, MAX_FAILED_ON_CHARACTERS), cause))

    def begin(self) -> None:
        """Do nothing: the folder is created with the first failed record."""

    def _finish(self) -> None:
        """Do nothing: readers are not told of an end of the failures."""
