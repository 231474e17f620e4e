"""Batch engine, which reads all existing rows once."""

from __future__ import annotations

from collections.abc import Callable

from pyspark.sql import SparkSession

from data_pipeline.shell.scan import Tables
from data_pipeline.shell.servers import Ranges


class Batch:
    """Engine that reads all input once (``job.Engine``)."""

    def __init__(self, spark: SparkSession, ranges: Ranges) -> None:
        self._spark, self._ranges = spark, ranges

    def tables(self, *, careful: bool) -> Tables:
        """Return every file of every source, and the ranges that servers had when the job began."""
        return Tables(self._spark, numbered=careful, ranges=self._ranges)

    def run(self, result: Callable[[], str]) -> str:
        """Call ``result`` once and return its text."""
        return result()
