"""Hand-written PySpark programs, as batch and micro-batches: ``by_hand.py CASE batch|streaming DATA OUTPUT``.

Each uses the best idiom: built-in functions wherever available, so that Python handles records only to split words, as
in Heronry's program (``cut``; ``cut in SQL`` is the alternative). With micro-batches, results are complete
(``complete``), or appended where Spark can only append. Both end once all input is read.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Any

from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as sql

from benchmarks.handwritten_spark import counted_by_python

#:  On the heap, where Spark keeps state by default, five million clicks do not fit.
ROCKS_DB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
EVENTS = "time long, user string, page string, cents long"
Read = Callable[[str], DataFrame]


def words(read: Read) -> DataFrame:
    """Return word counts: words split and counted by Python in each task, counts added by SQL."""
    counted = counted_by_python(read("text"))
    return counted.groupBy(sql.col("word").alias("key")).agg(sql.sum("n").alias("value"))


def words_in_sql(read: Read) -> DataFrame:
    """Return word counts with words split by SQL."""
    cut = read("text").select(sql.explode(sql.split(sql.trim("value"), r"\s+")).alias("word"))
    return cut.where(sql.length("word") > 1).groupBy(sql.lower("word").alias("key")).agg(sql.count("*").alias("value"))


def windows(read: Read) -> DataFrame:
    """Return sums of ten minutes."""
    summed = timed(read("views")).groupBy(sql.window("at", "10 minutes"), "page").agg(sql.sum("cents").alias("value"))
    return summed.select(sql.col("page").alias("key"), began("window"), "value")


def join(read: Read) -> DataFrame:
    """Join by user and half hour; a stream needs the window as a column with a watermark on each side."""
    sides = [timed(read(name)).withColumn("half", sql.window("at", "30 minutes")) for name in ("clicks", "purchases")]
    clicks = sides[0].select("user", "half", sql.col("time").alias("clicked"))
    bought = sides[1].select("user", "half", sql.col("time").alias("bought"))
    return clicks.join(bought, ["user", "half"]).select(sql.col("user").alias("key"), "clicked", "bought")


def sessions(read: Read) -> DataFrame:
    """Return Spark's own session windows, which a gap of exactly ten minutes does not end either."""
    gap = sql.session_window("at", "10 minutes")
    counted = timed(read("views")).groupBy(gap, "user").agg(sql.count("*").alias("value"))
    return counted.select(sql.col("user").alias("key"), began("session_window"), "value")


def topk(read: Read) -> DataFrame:
    """Return the top rows of each page. Not for streams, which do not support rank."""
    ranked = read("views").withColumn(
        "rank", sql.row_number().over(Window.partitionBy("page").orderBy(sql.desc("cents")))
    )
    best = ranked.where("rank <= 3").groupBy(sql.col("page").alias("key"))
    return best.agg(sql.sort_array(sql.collect_list("cents"), asc=False).alias("value"))


CASES = {
    "words": words,
    "words_in_sql": words_in_sql,
    "windows": windows,
    "join": join,
    "sessions": sessions,
    "topk": topk,
}


def timed(rows: DataFrame) -> DataFrame:
    """Add the event time as Spark needs it, and a watermark if rows stream."""
    at = rows.withColumn("at", sql.timestamp_millis("time"))
    return at.withWatermark("at", "1 day") if rows.isStreaming else at


def began(window: str) -> Any:
    """Return the start of a window in milliseconds."""
    return sql.unix_millis(sql.col(f"{window}.start")).alias("start")


def batch(spark: SparkSession, case: str, data: str, output: str) -> None:
    """Process all input once."""

    def read(name: str) -> DataFrame:
        return spark.read.text(f"{data}/{name}") if name == "text" else spark.read.parquet(f"{data}/{name}")

    CASES[case](read).write.json(output)


def streaming(spark: SparkSession, case: str, data: str, output: str) -> None:
    """Process micro-batches until all input is read."""

    def read(name: str) -> DataFrame:
        reader = spark.readStream
        return reader.text(f"{data}/{name}") if name == "text" else reader.schema(EVENTS).parquet(f"{data}/{name}")

    rows = CASES[case](read)
    if case == "join":
        written = rows.writeStream.format("json").option("path", output).outputMode("append")
    else:
        written = rows.writeStream.outputMode("complete").foreachBatch(
            lambda found, _: found.write.mode("overwrite").json(output)
        )
    written.option("checkpointLocation", f"{output}-checkpoint").trigger(availableNow=True).start().awaitTermination()


def main() -> None:
    """Run one case."""
    case, mode, data, output = sys.argv[1:5]
    os.environ["PYSPARK_PYTHON"] = sys.executable
    settings = {"spark.ui.enabled": "false", "spark.sql.session.timeZone": "UTC", "spark.log.level": "ERROR",
                "spark.sql.shuffle.partitions": "2", "spark.driver.host": "127.0.0.1",
                "spark.sql.streaming.stateStore.providerClass": ROCKS_DB}  # fmt: skip
    builder = SparkSession.builder.master("local[2]")
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    {"batch": batch, "streaming": streaming}[mode](spark, case, data, output)
    spark.stop()


if __name__ == "__main__":
    main()
