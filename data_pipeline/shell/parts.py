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
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as sql

from data_pipeline.core.plan import Unit
from data_pipeline.shell.catalyst import ResultTask, grouped, total_of
from data_pipeline.shell.tasks import accumulators
from heron_runtime.model.keys import encode
from heronry.streamlet.program import ReduceStep


def added_up(parts: DataFrame, step: ReduceStep) -> DataFrame:
    """Parts of several micro-batches to one row for each key, and window or session."""
    names = [name for name in parts.columns if name.startswith("acc")]
    added = [sql.expr(_added(step.monoid.builtin or "", name, names)).alias(name) for name in names]
    return grouped(parts, step, added, "last")


def _added(builtin: str, name: str, names: list[str]) -> str:
    if builtin in ("min", "max"):
        return f"{builtin}({name})"
    is_total = builtin == "sum" and name == "acc0" and len(names) == 2  # of fractions
    return total_of(name) if is_total else f"sum({name})"


@dataclass(frozen=True)
class PartsTask:
    """Parts to rows with the accumulators of Python, as the unit in front of the reducer would have made them."""

    tag: int
    step: ReduceStep

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        """``mapInArrow``'s function."""
        found = ResultTask(self.step, Unit(self.step.name, (), ()), {}).merged(batches)
        yield from accumulators(self.tag, self.step, (item._replace(code=encode(item.key)) for item in found))
