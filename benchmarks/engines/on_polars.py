"""Programs in polars with two threads: ``python on_polars.py CASE DATA OUTPUT`` writes one file of JSON lines."""

from __future__ import annotations

import sys

import polars as pl
from polars import col


def words(data: str) -> pl.LazyFrame:
    """Return the count of every word."""
    lines = pl.scan_csv(f"{data}/text/*.txt", has_header=False, new_columns=["line"], separator="\x01", quote_char=None)
    cut = lines.select(col("line").str.extract_all(r"\S+").explode().alias("word"))
    return (
        cut.filter(col("word").str.len_chars() > 1)
        .group_by(col("word").str.to_lowercase().alias("key"))
        .agg(pl.len().alias("value"))
    )


def windows(data: str) -> pl.LazyFrame:
    """Return sums of ten minutes."""
    start = (col("time") - col("time") % 600_000).alias("start")
    return views(data).group_by(col("page").alias("key"), start).agg(col("cents").sum().alias("value"))


def join(data: str) -> pl.LazyFrame:
    """Join by user and half hour."""
    half = (col("time") // 1_800_000).alias("half")
    clicks = pl.scan_parquet(f"{data}/clicks/*.parquet").select("user", half, col("time").alias("clicked"))
    bought = pl.scan_parquet(f"{data}/purchases/*.parquet").select("user", half, col("time").alias("bought"))
    return clicks.join(bought, on=["user", "half"]).select(col("user").alias("key"), "clicked", "bought")


def sessions(data: str) -> pl.LazyFrame:
    """Return sessions, numbered by the gaps before them."""
    nth = (col("time").diff() > 600_000).fill_null(False).cum_sum().over("user").alias("nth")
    numbered = views(data).sort("user", "time").with_columns(nth)
    counted = numbered.group_by("user", "nth").agg(col("time").min().alias("start"), pl.len().alias("value"))
    return counted.select(col("user").alias("key"), "start", "value")


def topk(data: str) -> pl.LazyFrame:
    """Return the three largest amounts of each page."""
    return (
        views(data).group_by(col("page").alias("key")).agg(col("cents").top_k(3).sort(descending=True).alias("value"))
    )


def views(data: str) -> pl.LazyFrame:
    """Read the table."""
    return pl.scan_parquet(f"{data}/views/*.parquet")


CASES = {"words": words, "windows": windows, "join": join, "sessions": sessions, "topk": topk}


def main() -> None:
    """Run one case."""
    case, data, output = sys.argv[1:4]
    CASES[case](data).collect(engine="streaming").write_ndjson(output)


if __name__ == "__main__":
    main()
