"""Dead letters, records that fail again and again: put aside, named and counted, so that the rest goes on.

A block that fails comes again, a few times, with growing pauses: what failed may have been a service that was away. The
block says how often it has been tried; the last time (``user.streamlet.retries``) it is *sifted*: what fails is halved
until records that fail stand alone. Those go to ``failed/COMPONENT-TASK.jsonl`` beside offsets and state, one line each
(time, step, where, record, failed_on, error, traceback), and are counted in ``failed-record-count``; all others are
processed.
Put aside is what entered the component, as a whole: a line, if one of its words fails (``failed_on``: the word).
"""

from __future__ import annotations

import json
import os
import time
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from heron_runtime.model.keys import UnsupportedKey
from heronry.api.component import Bolt
from heronry.api.metrics import CountMetric
from heronry.streamlet.errors import StepFailed, shown
from heronry.streamlet.online.block import Block
from heronry.streamlet.online.task_files import append_whole

RETRIES = "user.streamlet.retries"
DEFAULT_RETRIES = 5
MAX_FILE_BYTES = 64 * 1024 * 1024  # then failures are counted and logged only
MAX_RECORD_CHARACTERS = 64 * 1024
LOGGED = 10  # each of the first ones, then one in a thousand
RECORD_FAILURES = (StepFailed, UnsupportedKey)  # of the record, not of a disk or a connection of ours


def retries_of(config: Mapping[str, Any]) -> float:
    """How often a failed block is tried again before it is sifted; a negative number is for ever."""
    retries = int(config.get(RETRIES, DEFAULT_RETRIES))
    return float("inf") if retries < 0 else retries


class DeadLetters:
    """One task's."""

    def __init__(self, bolt: Bolt, config: Mapping[str, Any], context: Any, stage: str, folder: Path) -> None:
        self._log = bolt.log
        self._stage = stage
        self._path = folder / "failed" / f"{stage}-{context.get_task_index()}.jsonl"
        self._retries = retries_of(config)
        self.count = context.register_metric("failed-record-count", CountMetric())
        self._put = 0

    def is_last(self, tries: int) -> bool:
        """True if a block that was tried so often is to be sifted."""
        return tries >= self._retries

    def sift(self, block: Block, run: Callable[[Block], None], where: str = "") -> None:
        """Run the block; put aside the records that fail. Raises what is no record's fault."""
        parts = [block]
        while parts:
            part = parts.pop()
            try:
                run(part)
            except RECORD_FAILURES as error:
                size = len(part)
                if size <= 1:
                    self.put(part.records[0] if size else None, error, where)
                    continue
                half = size // 2
                parts += [part.picked(list(range(half, size))), part.picked(list(range(half)))]

    def put(self, record: Any, error: BaseException, where: str = "") -> None:
        """This record is not processed. It is in the file when this returns."""
        cause = error.__cause__ or error
        step, failed_on = (error.step, error.record) if isinstance(error, StepFailed) else (self._stage, record)
        self.count.incr()
        self._put += 1
        if self._put <= LOGGED or self._put % 1000 == 0:
            place = f" of {where}" if where else ""
            self._log.error(
                "step %r: the record %s%s is put aside, into %s (%d so far): %r",
                step, shown(failed_on), place, self._path, self._put, cause,
            )  # fmt: skip
        line = {
            "time": time.time(), "step": step, "where": where,
            "record": _plain(record), "failed_on": shown(failed_on, 2000),
            "error": repr(cause), "traceback": "".join(traceback.format_exception(cause)),
        }  # fmt: skip
        self._path.parent.mkdir(parents=True, exist_ok=True)
        data = json.dumps(line).encode() + b"\n"
        file = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            if os.fstat(file).st_size < MAX_FILE_BYTES:
                append_whole(file, data, self._path)
        finally:
            os.close(file)


def _plain(record: Any) -> Any:
    """As JSON says it, so that it can be read again; else as text."""
    try:
        data = msgspec.json.encode(record)
        return json.loads(data) if len(data) <= MAX_RECORD_CHARACTERS else shown(record, MAX_RECORD_CHARACTERS)
    except Exception:
        return shown(record, MAX_RECORD_CHARACTERS)
