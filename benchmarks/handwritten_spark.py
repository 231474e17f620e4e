"""Hand-written word counts in PySpark, one function per mapping, with which compiled programs are compared.

Every function takes a session and the path of a text and returns ``{word: count}``. Words are split by ``str.split``,
in lower case, and longer than one letter.
"""

from __future__ import annotations

import pickle
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sql

Counts = dict[str, int]


def words_of(line: str) -> list[str]:
    """Return the words of one line."""
    return line.split()


def is_word(word: str) -> bool:
    """Return True for words that are counted."""
    return len(word) > 1


def combined(batches: Iterator[Any]) -> dict[str, int]:
    """Return the word counts of a partition."""
    counts: dict[str, int] = {}
    for batch in batches:
        for line in batch.column(0).to_pylist():
            for word in words_of(line):
                if is_word(word):
                    lower = word.lower()
                    counts[lower] = counts.get(lower, 0) + 1
    return counts


def builtin_sql(spark: SparkSession, path: str) -> Counts:
    """Count without Python in the workers: explode, lower, groupBy, count."""
    words = spark.read.text(path).select(sql.explode(sql.split(sql.trim("value"), r"\s+")).alias("word"))
    counted = words.where(sql.length("word") > 1).select(sql.lower("word").alias("word")).groupBy("word").count()
    return {row["word"]: row["count"] for row in counted.collect()}


def counted_by_python(lines: DataFrame) -> DataFrame:
    """Return each task's counts, as ``word`` and ``n``: one ``mapInArrow`` for the chain with a map-side combine."""

    def combine(batches: Iterator[Any]) -> Iterator[Any]:
        import pyarrow as pa

        counts = combined(batches)
        yield pa.RecordBatch.from_pydict({"word": list(counts), "n": list(counts.values())})

    return lines.mapInArrow(combine, "word string, n long")


def combined_and_summed(spark: SparkSession, path: str) -> DataFrame:
    """Add the counts of all tasks by SQL."""
    return counted_by_python(spark.read.text(path)).groupBy("word").agg(sql.sum("n").alias("n"))


def arrow_combine_sql_sum(spark: SparkSession, path: str) -> Counts:
    """Collect the counts added by SQL."""
    return {row["word"]: row["n"] for row in combined_and_summed(spark, path).collect()}


def arrow_combine_arrow(spark: SparkSession, path: str) -> Counts:
    """Count with pickled keys and values and a second ``mapInArrow`` after the shuffle."""

    def combine(batches: Iterator[Any]) -> Iterator[Any]:
        import pyarrow as pa

        counts = combined(batches)
        keys, values = [pickle.dumps(k) for k in counts], [pickle.dumps(n) for n in counts.values()]
        yield pa.RecordBatch.from_pydict({"k": pa.array(keys, pa.binary()), "v": pa.array(values, pa.binary())})

    def merge(batches: Iterator[Any]) -> Iterator[Any]:
        import pyarrow as pa

        counts: Counter[bytes] = Counter()
        for batch in batches:
            for key, value in zip(batch.column(0).to_pylist(), batch.column(1).to_pylist(), strict=True):
                counts[key] += pickle.loads(value)
        words = [pickle.loads(key) for key in counts]
        yield pa.RecordBatch.from_pydict({"word": words, "n": list(counts.values())})

    partial = spark.read.text(path).mapInArrow(combine, "k binary, v binary")
    counted = partial.repartition("k").mapInArrow(merge, "word string, n long")
    return {row["word"]: row["n"] for row in counted.collect()}


def arrow_no_combine(spark: SparkSession, path: str) -> Counts:
    """Count with one ``mapInArrow`` without a combine: every word crosses to the JVM."""

    def explode(batches: Iterator[Any]) -> Iterator[Any]:
        import pyarrow as pa

        for batch in batches:
            lines = batch.column(0).to_pylist()
            words = [word.lower() for line in lines for word in words_of(line) if is_word(word)]
            yield pa.RecordBatch.from_pydict({"word": words})

    counted = spark.read.text(path).mapInArrow(explode, "word string").groupBy("word").count()
    return {row["word"]: row["count"] for row in counted.collect()}


def rdd_fused(spark: SparkSession, path: str) -> Counts:
    """Count with ``mapPartitions`` over the whole chain, and ``reduceByKey``."""

    def pairs(lines: Iterator[str]) -> Iterator[tuple[str, int]]:
        return ((word.lower(), 1) for line in lines for word in words_of(line) if is_word(word))

    return dict(spark.sparkContext.textFile(path).mapPartitions(pairs).reduceByKey(lambda a, b: a + b).collect())


def rdd_naive(spark: SparkSession, path: str) -> Counts:
    """Count with one RDD operation for each step."""
    words = spark.sparkContext.textFile(path).flatMap(words_of).filter(is_word).map(lambda w: (w.lower(), 1))
    return dict(words.reduceByKey(lambda a, b: a + b).collect())


#:  Name to function and kind, which selects the compiled programs to compare.
MAPPINGS: dict[str, tuple[Callable[[SparkSession, str], Counts], str]] = {
    "built-in SQL": (builtin_sql, "sql"),
    "mapInArrow, combine, SQL sum": (arrow_combine_sql_sum, "python"),
    "mapInArrow, combine, 2nd mapInArrow": (arrow_combine_arrow, "python"),
    "mapInArrow, no combine, SQL count": (arrow_no_combine, "python"),
    "RDD, mapPartitions": (rdd_fused, "python"),
    "RDD, one operation a step": (rdd_naive, "python"),
}


def plain_python(path: str) -> Counts:
    """Count in one process without Spark."""
    counts: Counter[str] = Counter()
    with open(path) as text:
        for line in text:
            counts.update(word.lower() for word in words_of(line) if is_word(word))
    return dict(counts)
