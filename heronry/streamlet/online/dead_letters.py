"""Dead letters, records that fail again and again: put aside, named and counted, so that the rest goes on.

A block that fails comes again, a few times, with growing pauses: what failed may have been a service that was away. The
block says how often it has been tried; the last time (``user.streamlet.retries``) it is *sifted*: what fails is halved
until records that fail stand alone. Those go to ``failed/COMPONENT-TASK.jsonl`` beside offsets and state, one line each
(``heronry.streamlet.aside``), and are counted in ``failed-record-count``; all others are processed. Beyond the bound of
the policy nothing more is put aside: the block fails, and comes again for ever, as if the policy were to fail.
Put aside is what entered the component, as a whole: a line, if one of its words fails (``failed_on``: the word).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from heron_runtime.model.keys import UnsupportedKey
from heronry.api.component import Bolt
from heronry.api.metrics import CountMetric
from heronry.streamlet.aside import MAX_FAILED_ON_CHARACTERS, MOST, TooManyAside, letter, policy_of
from heronry.streamlet.errors import StepFailed, shown
from heronry.streamlet.online.block import Block
from heronry.streamlet.online.task_files import append_whole

RETRIES = "user.streamlet.retries"
DEFAULT_RETRIES = 5
MAX_FILE_BYTES = 64 * 1024 * 1024  # then failures are counted and logged only
LOGGED = 10  # each of the first ones, then one in a thousand
RECORD_FAILURES = (StepFailed, UnsupportedKey)  # of the record, not of a disk or a connection of ours


def retries_of(config: Mapping[str, Any]) -> float:
    """How often a failed block is tried again before it is sifted; a negative number is for ever."""
    retries = int(config.get(RETRIES, DEFAULT_RETRIES))
    return float("inf") if retries < 0 or not policy_of(config).aside else retries


def _nowhere(_: int) -> str:
    return ""


class DeadLetters:
    """One task's."""

    def __init__(self, bolt: Bolt, config: Mapping[str, Any], context: Any, stage: str, folder: Path) -> None:
        self._log = bolt.log
        self._stage = stage
        self._path = folder / "failed" / f"{stage}-{context.get_task_index()}.jsonl"
        self._retries = retries_of(config)
        self.count = context.register_metric("failed-record-count", CountMetric())
        policy = policy_of(config)
        self._most = policy.most if policy.aside else 0
        self._put = self._path.read_bytes().count(b"\n") if self._path.exists() else 0

    def is_last(self, tries: int) -> bool:
        """True if a block that was tried so often is to be sifted."""
        return tries >= self._retries

    def sift(self, block: Block, run: Callable[[Block], None], where: Callable[[int], str] = _nowhere) -> None:
        """Run the block; put aside the records that fail. ``where(i)``: the place of record i. Raises what is no
        record's fault."""
        parts = [(0, block)]
        while parts:
            first, part = parts.pop()
            try:
                run(part)
            except RECORD_FAILURES as error:
                size = len(part)
                if size <= 1:
                    self.put(part.records[0] if size else None, error, where(first) if size else "")
                    continue
                half = size // 2
                parts += [(first + half, part.picked(list(range(half, size)))), (first, part.picked(list(range(half))))]

    def put(self, record: Any, error: BaseException, where: str = "") -> None:
        """This record is not processed. It is in the file when this returns. Raises TooManyAside."""
        cause = error.__cause__ or error
        step, failed_on = (error.step, error.record) if isinstance(error, StepFailed) else (self._stage, record)
        if self._put >= self._most:
            raise TooManyAside(
                f"{self._put} records are put aside in {self._path}, as many as {MOST} allows; step {step!r} failed on "
                f"{shown(failed_on)}"
            ) from error
        self.count.incr()
        self._put += 1
        if self._put <= LOGGED or self._put % 1000 == 0:
            place = f" of {where}" if where else ""
            self._log.error(
                "step %r: the record %s%s is put aside, into %s (%d so far): %r",
                step, shown(failed_on), place, self._path, self._put, cause,
            )  # fmt: skip
        self._path.parent.mkdir(parents=True, exist_ok=True)
        data = letter(step, where, record, shown(failed_on, MAX_FAILED_ON_CHARACTERS), cause)
        file = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            if os.fstat(file).st_size < MAX_FILE_BYTES:
                append_whole(file, data, self._path)
        finally:
            os.close(file)
