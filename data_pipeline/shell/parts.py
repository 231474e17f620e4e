"""Parts: accumulators that SQL has made of a micro-batch, as columns, kept next to the accumulators of Python.

``catalyst.reduced`` makes *parts* of the files of one micro-batch: a key, a start if there are windows, and the columns
of an accumulator. SQL adds up parts as it does records: counts and sums are sums of parts, a minimum is the minimum of
the parts, and sessions that touch are merged. A result of many micro-batches therefore does not pass through Python
either. If Python had to compute a micro-batch, because a record was put aside or its columns have other types, the
parts are converted to Python accumulators and merged with those.
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
    """Return the parts of several micro-batches added up to one row for each key, and window or session."""
    names = [name for name in parts.columns if name.startswith("acc")]
    added = [sql.expr(_added(step.monoid.builtin or "", name, names)).alias(name) for name in names]
    return grouped(parts, step, added, "last")


def _added(builtin: str, name: str, names: list[str]) -> str:
    if builtin in ("min", "max"):
        return f"{builtin}({name})"
    is_total = builtin == "sum" and name == "acc0" and len(names) == 2  # of floating-point numbers
    return total_of(name) if is_total else f"sum({name})"


@dataclass(frozen=True)
class PartsTask:
    """Task that converts parts to rows with Python accumulators, as emitted by the unit before the reducer."""

    tag: int
    step: ReduceStep

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        """Convert batches; the function for ``mapInArrow``."""
        found = ResultTask(self.step, Unit(self.step.name, (), ()), {}).merged(batches)
        yield from accumulators(self.tag, self.step, (item._replace(code=encode(item.key)) for item in found))
