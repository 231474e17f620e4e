"""Records that fail: put aside, named and counted, each once, so that the rest goes on.

A block in which a record fails is *sifted*: it is halved until records that fail stand alone. Those go to ``failed/``
in the topology's folder, one line each (``heronry.streamlet.aside``), in a file for each checkpoint and task that is
seen with it, and are counted in ``failed-record-count``; all others are processed. Where all of the first records
fail, beyond the bound of the policy, or where the policy is to fail, the record fails for the engine: all tasks go back
to the last checkpoint.
Put aside is what entered the component, as a whole: a line, if one of its words fails (``failed_on``: the word).
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

LOGGED = 10  # each of the first ones, then one in a thousand
RECORD_FAILURES = (StepFailed, UnsupportedKey)  # of the record, not of a disk or a connection of ours
PUT = "aside"  # in the task's state: how many there are
PASSED = "passed"  # in the task's state: a record has got through
FIRST = 100  # records: if all of the first ones fail, the program is wrong, not its data


def _nowhere(_: int) -> str:
    return ""


class FailedRecordWriter(LinesWriter):
    """One task's. ``state``: the task's own."""

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
        """Run the block, and put aside the records that fail. ``where(i)``: the place of record i. Raises what is no
        record's fault, and where the policy is to fail all."""
        try:
            run(block.copied() if self.policy.aside else block)  # a retry needs the records as they were
        except RECORD_FAILURES:
            if not self.policy.aside:
                raise
            self.sift(block, run, where)
        else:
            self.passed(len(block))

    def passed(self, records: int) -> None:
        """So many records got through."""
        if records and PASSED not in self._state:
            self._state[PASSED] = True

    def sift(self, block: Block, run: Callable[[Block], None], where: Callable[[int], str] = _nowhere) -> None:
        """The same for a block that may hold records that fail, by halves. Each run gets copies: functions may have
        changed their records in place before one failed."""
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
        """This record is not processed. Raises TooManyFailures, and the error where the policy is to fail."""
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
        """The folder comes with the first of them."""

    def _finish(self) -> None:
        """There is no end of failures to tell of."""
