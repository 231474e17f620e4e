"""Progress of a running job: the tasks, progress and rows of each stage, shown in a line when something has changed.

Spark keeps these figures in its status store with or without its web page. A thread reads them twice a second. On a
terminal the line is rewritten in place; elsewhere a new line is written every few seconds at most.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, TextIO

from py4j.protocol import Py4JError, Py4JJavaError, Py4JNetworkError
from pyspark.sql import SparkSession

from data_pipeline.core.stage_progress import format_progress

LOOK_EVERY_SECS = 0.5
LINE_EVERY_SECS = 3.0


@dataclass(frozen=True)
class StageProgress:
    """Progress of one stage: finished, total and failed tasks, and records read from input and from the shuffle."""

    stage: int
    done: int
    tasks: int
    failed: int
    rows_read: int
    rows_shuffled: int
    rows_written: int = 0

    def describe(self, seconds: float) -> str:
        """Return a description of the stage after it has run for ``seconds``."""
        failed = f", {self.failed} failed" if self.failed else ""
        rows = self.rows_read + self.rows_shuffled
        far = format_progress(self.done, self.tasks, seconds)
        return f"stage {self.stage}: {self.done}/{self.tasks} tasks ({far}){failed}, {rows:,} rows"


def active_stages(spark: SparkSession) -> list[StageProgress]:
    """Return the running stages in the order of their numbers."""
    stages = _store(spark).activeStages()
    return _in_order(_progress(stages.apply(index)) for index in range(stages.size()))


def next_stage(spark: SparkSession) -> int:
    """Return the number of the next stage; a warm Spark has had stages of other jobs before."""
    return int(_context(spark).dagScheduler().nextStageId())


def stages_from(spark: SparkSession, first: int) -> list[StageProgress]:
    """Return the stages that have run since ``next_stage`` returned ``first``, as far as Spark still remembers them."""
    store, rows = _store(spark), []
    for number in range(first, next_stage(spark)):
        with suppress(Py4JJavaError):  # evicted, or skipped because its output existed
            rows.append(_progress(store.lastStageAttempt(number)))
    return _in_order(rows)


def _context(spark: SparkSession) -> Any:
    return spark.sparkContext._jsc.sc()


def _store(spark: SparkSession) -> Any:
    return _context(spark).statusStore()


def _in_order(rows: Iterable[StageProgress]) -> list[StageProgress]:
    return sorted((row for row in rows if row.tasks), key=lambda row: row.stage)


def _progress(stage: Any) -> StageProgress:
    return StageProgress(
        stage.stageId(), stage.numCompleteTasks(), stage.numTasks(), stage.numFailedTasks(),
        stage.inputRecords(), stage.shuffleReadRecords(), stage.outputRecords(),
    )  # fmt: skip


def summary(spark: SparkSession, first: int) -> str:
    """Return one line about the stages from ``first`` on: their number, tasks and rows."""
    rows = stages_from(spark, first)
    return (
        f"{len(rows)} stages, {sum(r.done for r in rows)} tasks"
        f"{_failed(sum(r.failed for r in rows))}, {sum(r.rows_read for r in rows):,} rows read, "
        f"{sum(r.rows_shuffled for r in rows):,} rows shuffled"
    )


def _failed(number: int) -> str:
    return f" ({number} failed and were run again)" if number else ""


@contextmanager
def shown(spark: SparkSession, out: TextIO) -> Iterator[Callable[[str], None]]:
    """Show the stages on ``out`` during the block and a summary at its end; yield a function that writes a line."""
    began, first = time.monotonic(), next_stage(spark)
    with watched(spark, out) as say:
        yield say
    say(f"{summary(spark, first)}, {time.monotonic() - began:.1f} s")


@contextmanager
def watched(spark: SparkSession, out: TextIO) -> Iterator[Callable[[str], None]]:
    """Show the stages on ``out`` during the block, without a summary; yield a function that writes a line."""
    screen, over, seen = _Screen(out), threading.Event(), dict[int, float]()

    def look() -> None:
        while not over.wait(LOOK_EVERY_SECS):
            try:
                now, rows = time.monotonic(), active_stages(spark)
                screen.show([row.describe(now - seen.setdefault(row.stage, now)) for row in rows])
            except (Py4JError, Py4JNetworkError, OSError):
                return  # the session is ending

    thread = threading.Thread(target=look, name="progress", daemon=True)
    thread.start()
    try:
        yield screen.line
    finally:
        over.set()
        thread.join()
        screen.line("")


class _Screen:
    """Display of one line: in place on a terminal, as occasional lines elsewhere."""

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._lock = threading.Lock()
        self._terminal = out.isatty()
        self._shown = ""
        self._next = 0.0

    def show(self, rows: list[str]) -> None:
        text = "; ".join(rows)
        with self._lock:
            if not text or text == self._shown:
                return
            if self._terminal:
                self._out.write(f"\r\x1b[2K{text[:160]}")
            elif time.monotonic() < self._next:
                return
            else:
                self._out.write(f"{text}\n")
                self._next = time.monotonic() + LINE_EVERY_SECS
            self._shown = text
            self._out.flush()

    def line(self, text: str) -> None:
        with self._lock:
            clear = "\r\x1b[2K" if self._terminal and self._shown else ""
            self._shown = ""
            if clear or text:
                self._out.write(clear + (f"{text}\n" if text else ""))
                self._out.flush()
