"""Run many programs in one Spark job of the shared session, since each job costs a second."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from functools import reduce as fold
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sql

from data_pipeline.core.combine import Limits
from data_pipeline.core.planner import Choice, plan
from data_pipeline.shell.execute import Execution
from data_pipeline.shell.resolved_request import with_columns
from data_pipeline.shell.scan import Tables
from data_pipeline.shell.servers import ranges_there
from heronry.streamlet.program import Program

Results = list[dict[str, list[Any]]]


def read_back(spark: SparkSession, program: Program) -> dict[str, list[Any]]:
    """Return the input of one program's sinks, each read by a separate job."""
    tables = Tables(spark)
    found = plan(program, with_columns(tables, program, Choice()))
    execution = Execution(spark, found, tables=tables)
    try:
        return {output.step: execution.records(output.step, pickle.loads) for output in found.outputs}
    finally:
        execution.close()


def run_all(
    spark: SparkSession, programs: Sequence[Program], limits: Limits | None = None, choice: Choice | None = None
) -> Results:
    """Return the input of each program's sinks, by step."""
    executions, frames = [], []
    results: Results = []
    for number, program in enumerate(programs):
        tables = Tables(spark, ranges=ranges_there(list(program.sources())))
        found = plan(program, with_columns(tables, program, choice or Choice()))
        execution = Execution(spark, found, limits, tables=tables)
        executions.append(execution)
        results.append({output.step: [] for output in found.outputs})
        for step in results[number]:
            rows = execution.output(step)
            frames.append(rows.select(sql.lit(number).alias("program"), sql.lit(step).alias("step"), "data"))
    if frames:
        for row in fold(DataFrame.union, frames).collect():
            results[row["program"]][row["step"]].append(pickle.loads(row["data"]))
    for execution in executions:
        execution.close()
    return results
