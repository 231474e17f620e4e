"""Accumulators that SQL has made of a micro-batch, as columns, kept beside those of Python.

Theory of operation. What ``catalyst.reduced`` gives of the files of one micro-batch are *parts*: a key, a start if
there are windows, and the columns an accumulator is made of. Parts are added up by SQL as records are: counts and sums
are sums of parts, the smallest is the smallest of them, and sessions that touch become one. So a result of many
micro-batches never passes through Python either. Where a micro-batch had to be computed by Python, because a record of
it was put aside or its columns have other types, parts become the accumulators of Python and are merged with these.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as sql

from data_pipeline.core.combine import Rows
from data_pipeline.core.payload import dump
from data_pipeline.core.plan import Unit
from data_pipeline.shell.catalyst import ResultTask, total_of
from data_pipeline.shell.tasks import RESULTS_PER_BATCH, batch_of
from heron_runtime.model.keys import encode
from heronry.streamlet.program import ReduceStep


def added_up(parts: DataFrame, step: ReduceStep) -> DataFrame:
    """Parts of several micro-batches to one row for each key, and window or session."""
    accumulators = [name for name in parts.columns if name.startswith("acc")]
    added = [sql.expr(_added(step.monoid.builtin or "", name, accumulators)).alias(name) for name in accumulators]
    if step.windowing is None:
        return parts.groupBy("key").agg(*added)
    if not step.merges:
        return parts.groupBy("key", "start").agg(*added)
    began, ended = sql.min("start").alias("start"), sql.max("last").alias("last")
    numbered = _numbered(parts, step.windowing.window.length_ms)
    return numbered.groupBy("key", "session").agg(began, *added, ended).drop("session")


def _added(builtin: str, name: str, accumulators: list[str]) -> str:
    if builtin in ("min", "max"):
        return f"{builtin}({name})"
    is_total = builtin == "sum" and name == "acc0" and len(accumulators) == 2  # of fractions
    return total_of(name) if is_total else f"sum({name})"


def _numbered(parts: DataFrame, gap_ms: int) -> DataFrame:
    """With the number of the session each part belongs to, among those of its key: a part that begins no more than the
    gap behind the last record of all before it goes on with their session."""
    over = "OVER (PARTITION BY key ORDER BY start, last"
    before = f"max(last) {over} ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)"
    within = f"try_subtract(start, {before}) <= {gap_ms}L"  # NULL for the first, and where it overflows
    fresh = parts.selectExpr("*", f"CASE WHEN {within} THEN 0 ELSE 1 END AS fresh")
    return fresh.selectExpr("* EXCEPT (fresh)", f"sum(fresh) {over} ROWS UNBOUNDED PRECEDING) AS session")


@dataclass(frozen=True)
class PartsTask:
    """Parts to rows with the accumulators of Python, as the unit in front of the reducer would have made them."""

    tag: int
    step: ReduceStep

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        """``mapInArrow``'s function."""
        found = ResultTask(self.step, Unit(self.step.name, (), ()), {}).merged(batches)
        while chunk := list(islice(found, RESULTS_PER_BATCH)):
            yield batch_of(
                Rows(
                    self.tag, [encode(item.key) for item in chunk], [item.start for item in chunk],
                    [dump(item.key, item.accumulator) for item in chunk],
                    [item.accumulator for item in chunk] if self.step.counts else None,
                )
            )  # fmt: skip
