"""The engine of a batch: all rows there are, once."""

from __future__ import annotations

from collections.abc import Callable

from pyspark.sql import SparkSession

from data_pipeline.shell.scan import Tables


class Batch:
    """What ``job.Engine`` says."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark

    def tables(self, *, careful: bool) -> Tables:
        """Every file of every source."""
        return Tables(self._spark, numbered=careful)

    def run(self, result: Callable[[], str]) -> str:
        """There is one."""
        return result()
